"""The metrics page."""

from flowserve.frontend.metrics import FIRST_TOKEN_BUCKETS, FrontendMetrics, Stopwatch, snapshot
from flowserve.wire import TokenEvent


def page(metrics: FrontendMetrics) -> dict[str, float]:
    rows = (line.rpartition(" ") for line in metrics.render().splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in rows}


def test_an_answer_is_timed():
    metrics, now = FrontendMetrics("m"), 100.0
    stopwatch = Stopwatch(metrics, lambda: now, started=100.0)
    now = 100.5
    stopwatch.saw(TokenEvent(index=0, tokens=(1,)), prompt_tokens=7)
    now = 100.7
    stopwatch.saw(TokenEvent(index=1, tokens=(2, 3), finish_reason="length"), prompt_tokens=7)
    values = page(metrics)
    assert values['vllm:time_to_first_token_seconds_bucket{le="0.25",model_name="m"}'] == 0
    assert values['vllm:time_to_first_token_seconds_bucket{le="0.5",model_name="m"}'] == 1
    assert values['vllm:time_per_output_token_seconds_count{model_name="m"}'] == 2
    assert abs(values['vllm:time_per_output_token_seconds_sum{model_name="m"}'] - 0.2) < 1e-9
    assert values['vllm:e2e_request_latency_seconds_bucket{le="+Inf",model_name="m"}'] == 1
    assert values['vllm:request_success_total{finished_reason="length",model_name="m"}'] == 1
    assert sum(snapshot(metrics.per_token).counts) == 2
    assert snapshot(metrics.first_token).counts[FIRST_TOKEN_BUCKETS.index(0.5)] == 1
    assert snapshot(metrics.first_token).bounds == FIRST_TOKEN_BUCKETS
    assert values['vllm:prompt_tokens_total{model_name="m"}'] == 7
    assert values['vllm:generation_tokens_total{model_name="m"}'] == 3


def test_an_answer_that_breaks_off_is_not_timed():
    metrics = FrontendMetrics("m")
    Stopwatch(metrics, lambda: 1.0, started=0.0).saw(TokenEvent(index=0, tokens=(1,)), prompt_tokens=7)
    assert page(metrics)['vllm:time_to_first_token_seconds_count{model_name="m"}'] == 0


def test_label_values_are_escaped():
    assert 'model_name="a\\"b\\\\c\\nd"' in FrontendMetrics('a"b\\c\nd').render()


def test_what_is_counted_has_the_names_that_dashboards_know():
    text = FrontendMetrics("m").render()
    kinds = dict(line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE"))
    assert kinds == {
        "vllm:num_requests_running": "gauge",
        "vllm:time_to_first_token_seconds": "histogram",
        "vllm:time_per_output_token_seconds": "histogram",
        "vllm:e2e_request_latency_seconds": "histogram",
        "vllm:request_success_total": "counter",
        "vllm:prompt_tokens_total": "counter",
        "vllm:generation_tokens_total": "counter",
        "xdeepserve:request_retries_total": "counter",
        "xdeepserve:requests_unserved_total": "counter",
        "xdeepserve:http_requests_total": "counter",
    }
