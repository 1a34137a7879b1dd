"""What the frontend measures: counters, gauges and histograms that are filled as requests pass.

Names, buckets and the ``model_name`` label follow vLLM, so that dashboards made for it work unchanged.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from flowserve import wire
from flowserve.exposition import page
from flowserve.wire import TokenEvent

disable_created_metrics()  # they double the page, and no dashboard made for vLLM reads them

FIRST_TOKEN_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
    *(160.0, 640.0, 2560.0),
)
PER_TOKEN_BUCKETS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
END_TO_END_BUCKETS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0),
    *(1920.0, 7680.0),
)


class FrontendMetrics:
    """Everything that /metrics of a frontend shows; ``running`` counts the answers in flight."""

    def __init__(self, model_name: str) -> None:
        self.running = 0
        self._registry = registry = CollectorRegistry()
        self._labels = {"model_name": model_name}

        def by(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, ["model_name", *labels], registry=registry)

        def counter(name: str, text: str) -> Counter:
            return by(name, text).labels(model_name)

        def histogram(name: str, text: str, bounds: Sequence[float]) -> Histogram:
            return Histogram(name, text, ["model_name"], buckets=bounds, registry=registry).labels(model_name)

        in_flight = Gauge("vllm:num_requests_running", "Requests in flight.", ["model_name"], registry=registry)
        in_flight.labels(model_name).set_function(lambda: self.running)
        self.first_token = histogram(
            "vllm:time_to_first_token_seconds", "From request to first token.", FIRST_TOKEN_BUCKETS
        )
        self.per_token = histogram(
            "vllm:time_per_output_token_seconds", "Between tokens of an answer.", PER_TOKEN_BUCKETS
        )
        self.end_to_end = histogram(
            "vllm:e2e_request_latency_seconds", "From request to last token.", END_TO_END_BUCKETS
        )
        self.prompt_tokens = counter("vllm:prompt_tokens_total", "Prompt tokens of answered requests.")
        self.generation_tokens = counter("vllm:generation_tokens_total", "Tokens generated.")
        self.retries = counter("xdeepserve:request_retries_total", "Attempts repeated before a token was sent.")
        self.unserved = counter("xdeepserve:requests_unserved_total", "Requests that found no instance.")
        self._finished = by("vllm:request_success_total", "Answers that ended well, by reason.", "finished_reason")
        self._http = by("xdeepserve:http_requests_total", "HTTP requests, by route and status.", "route", "status")

    def finished(self, reason: str) -> None:
        """An answer ended well."""
        self._finished.labels(**self._labels, finished_reason=reason).inc()

    def answered(self, route: str, status: int) -> None:
        """An HTTP request was answered."""
        self._http.labels(**self._labels, route=route, status=str(status)).inc()

    @property
    def refused(self) -> int:
        """Requests that found no instance so far."""
        return int(self._registry.get_sample_value("xdeepserve:requests_unserved_total", self._labels) or 0)

    def render(self) -> str:
        """The whole page."""
        return page(self._registry.collect())


def snapshot(histogram: Histogram) -> wire.Histogram:
    """The counts so far, of each bucket alone."""
    samples = [one for metric in histogram.collect() for one in metric.samples if one.name.endswith("_bucket")]
    totals = [int(one.value) for one in samples]
    bounds = tuple(float(one.labels["le"]) for one in samples[:-1])
    return wire.Histogram(bounds=bounds, counts=tuple(after - before for before, after in pairwise((0, *totals))))


class Stopwatch:
    """Times one attempt. Only an answer that ends well is recorded, so a repeated attempt counts once."""

    def __init__(self, metrics: FrontendMetrics, clock: Callable[[], float], started: float) -> None:
        self._metrics, self._clock, self._started = metrics, clock, started
        self._arrivals: list[tuple[float, int]] = []

    def saw(self, event: TokenEvent, *, prompt_tokens: int) -> None:
        """Note an event's arrival; the one with a finish reason records the whole answer."""
        if event.tokens:
            self._arrivals.append((self._clock(), len(event.tokens)))
        if event.finish_reason is None:
            return
        metrics = self._metrics
        if self._arrivals:
            metrics.first_token.observe(self._arrivals[0][0] - self._started)
        for (before, _), (now, tokens) in pairwise(self._arrivals):
            for _ in range(tokens):
                metrics.per_token.observe((now - before) / tokens)
        metrics.end_to_end.observe(self._clock() - self._started)
        metrics.finished(event.finish_reason)
        metrics.prompt_tokens.inc(prompt_tokens)
        metrics.generation_tokens.inc(sum(tokens for _, tokens in self._arrivals))
