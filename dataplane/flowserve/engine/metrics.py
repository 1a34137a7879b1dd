"""The engine's figures, under vLLM's names where vLLM has one."""

from __future__ import annotations

from prometheus_client.core import HistogramMetricFamily

from flowserve.engine.iteration import Tally
from flowserve.exposition import counter, gauge, page
from flowserve.wire import EngineStatus

LABELS = ("model_name",)


def render(model_name: str, status: EngineStatus, tally: Tally) -> str:
    """The page of one engine."""
    gauges = (
        ("vllm:num_requests_running", "Sequences that hold KV blocks.", status.running),
        ("vllm:num_requests_waiting", "Sequences that wait for KV blocks.", status.waiting),
        ("vllm:kv_cache_usage_perc", "Share of the KV blocks in use; 1 is all.", status.kv_usage),
        ("xdeepserve:epoch", "Epoch of the membership that is followed.", status.epoch),
        ("xdeepserve:longest_gc_pause_seconds", "Longest run of Python's garbage collector.", tally.longest_pause),
    )
    counters = (
        ("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", tally.looked_up),
        ("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", tally.found),
        ("vllm:spec_decode_num_draft_tokens_total", "Tokens drafted by MTP and verified.", tally.drafted),
        ("vllm:spec_decode_num_accepted_tokens_total", "Drafted tokens that were accepted.", tally.accepted),
    )
    computed = HistogramMetricFamily("vllm:iteration_tokens_total", "Tokens computed in an iteration.", labels=LABELS)
    computed.add_metric([model_name], buckets=[("+Inf", status.iterations)], sum_value=tally.tokens)
    return page(
        (
            *(gauge(name, text, LABELS, [([model_name], value)]) for name, text, value in gauges),
            *(counter(name, text, LABELS, [([model_name], value)]) for name, text, value in counters),
            computed,
        )
    )
