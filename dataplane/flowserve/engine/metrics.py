"""The engine's figures in Prometheus' text format, under vLLM's names where vLLM has one."""

from __future__ import annotations

from flowserve.wire import EngineStatus


def exposition(model_name: str, status: EngineStatus, tokens: int) -> str:
    """``tokens``: how many the engine has computed, prompt and answer, since it started."""
    label = model_name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    figures = (
        ("vllm:num_requests_running", "gauge", "Sequences that hold KV blocks.", status.running),
        ("vllm:num_requests_waiting", "gauge", "Sequences that wait for KV blocks.", status.waiting),
        ("vllm:kv_cache_usage_perc", "gauge", "Share of the KV blocks in use, 1 is all.", status.kv_usage),
        ("xdeepserve:iterations_total", "counter", "Iterations committed, empty ones included.", status.iterations),
        ("xdeepserve:epoch", "gauge", "Epoch of the membership that is followed.", status.epoch),
    )
    simple = "".join(
        f'# HELP {name} {text}\n# TYPE {name} {kind}\n{name}{{model_name="{label}"}} {value}\n'
        for name, kind, text, value in figures
    )
    histogram = "vllm:iteration_tokens_total"
    return simple + (
        f"# HELP {histogram} Tokens computed in an iteration.\n# TYPE {histogram} histogram\n"
        f'{histogram}_bucket{{model_name="{label}",le="+Inf"}} {status.iterations}\n'
        f'{histogram}_sum{{model_name="{label}"}} {tokens}\n'
        f'{histogram}_count{{model_name="{label}"}} {status.iterations}\n'
    )
