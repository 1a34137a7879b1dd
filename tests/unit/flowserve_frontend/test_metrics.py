"""The metrics page."""

from flowserve.frontend.metrics import FrontendMetrics, Stopwatch
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
    assert values['vllm:time_to_first_token_seconds_bucket{model_name="m",le="0.25"}'] == 0
    assert values['vllm:time_to_first_token_seconds_bucket{model_name="m",le="0.5"}'] == 1
    assert values['vllm:time_per_output_token_seconds_count{model_name="m"}'] == 2
    assert abs(values['vllm:time_per_output_token_seconds_sum{model_name="m"}'] - 0.2) < 1e-9
    assert values['vllm:e2e_request_latency_seconds_bucket{model_name="m",le="+Inf"}'] == 1
    assert values['vllm:request_success_total{model_name="m",finished_reason="length"}'] == 1
    assert sum(metrics.per_token.snapshot().counts) == 2
    assert values['vllm:prompt_tokens_total{model_name="m"}'] == 7
    assert values['vllm:generation_tokens_total{model_name="m"}'] == 3


def test_an_answer_that_breaks_off_is_not_timed():
    metrics = FrontendMetrics("m")
    Stopwatch(metrics, lambda: 1.0, started=0.0).saw(TokenEvent(index=0, tokens=(1,)), prompt_tokens=7)
    assert page(metrics)['vllm:time_to_first_token_seconds_count{model_name="m"}'] == 0


def test_label_values_are_escaped():
    assert 'model_name="a\\"b\\\\c\\nd"' in FrontendMetrics('a"b\\c\nd').render()
