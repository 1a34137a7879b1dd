"""The engine's figures, under vLLM's names where vLLM has one."""

from __future__ import annotations

from flowserve.engine.iteration import Tally
from flowserve.exposition import family, sample
from flowserve.wire import EngineStatus

TOKENS = "vllm:iteration_tokens_total"


def render(model_name: str, status: EngineStatus, tally: Tally) -> str:
    """The page of one engine."""
    labels = {"model_name": model_name}
    gauges = (
        ("vllm:num_requests_running", "Sequences that hold KV blocks.", status.running),
        ("vllm:num_requests_waiting", "Sequences that wait for KV blocks.", status.waiting),
        ("vllm:kv_cache_usage_perc", "Share of the KV blocks in use; 1 is all.", status.kv_usage),
        ("xdeepserve:epoch", "Epoch of the membership that is followed.", status.epoch),
    )
    counters = (
        ("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", tally.looked_up),
        ("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", tally.found),
        ("vllm:spec_decode_num_draft_tokens_total", "Tokens drafted by MTP and verified.", tally.drafted),
        ("vllm:spec_decode_num_accepted_tokens_total", "Drafted tokens that were accepted.", tally.accepted),
    )
    histogram = [
        sample(f"{TOKENS}_bucket", {**labels, "le": "+Inf"}, status.iterations),
        sample(f"{TOKENS}_sum", labels, tally.tokens),
        sample(f"{TOKENS}_count", labels, status.iterations),
    ]
    families = [family(name, "gauge", text, [sample(name, labels, value)]) for name, text, value in gauges]
    families += [family(name, "counter", text, [sample(name, labels, value)]) for name, text, value in counters]
    return "".join([*families, family(TOKENS, "histogram", "Tokens computed in an iteration.", histogram)])
