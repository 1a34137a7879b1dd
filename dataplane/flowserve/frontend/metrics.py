"""What the frontend measures: counters, gauges and histograms that are filled as requests pass.

Names, buckets and the ``model_name`` label follow vLLM, so that dashboards made for it work unchanged.
"""

from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise

from flowserve import wire
from flowserve.exposition import family, sample
from flowserve.wire import TokenEvent

Labels = Mapping[str, str]

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


class Counter:
    """Counts that only grow, one for each combination of label values."""

    def __init__(self, name: str, text: str, base: Labels) -> None:
        self._name, self._text, self._base = name, text, base
        self._values: Tally[tuple[tuple[str, str], ...]] = Tally()

    def add(self, amount: int = 1, **labels: str) -> None:
        """Add to the count of these label values."""
        self._values[tuple(labels.items())] += amount

    @property
    def total(self) -> int:
        """Over all label values."""
        return self._values.total()

    def render(self) -> str:
        """The exposition."""
        samples = (sample(self._name, {**self._base, **dict(key)}, value) for key, value in self._values.items())
        return family(self._name, "counter", self._text, samples)


class Gauge:
    """A number that goes up and down."""

    def __init__(self, name: str, text: str, base: Labels) -> None:
        self._name, self._text, self._base = name, text, base
        self.value = 0

    def render(self) -> str:
        """The exposition."""
        return family(self._name, "gauge", self._text, [sample(self._name, self._base, self.value)])


class Histogram:
    """Observations in seconds, counted by upper bound of their bucket."""

    def __init__(self, name: str, text: str, base: Labels, bounds: Sequence[float]) -> None:
        self._name, self._text, self._base, self._bounds = name, text, base, tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        """Record the same duration ``times`` times."""
        self._counts[bisect_left(self._bounds, seconds)] += times
        self._sum += seconds * times

    def snapshot(self) -> wire.Histogram:
        """The counts so far, of each bucket alone."""
        return wire.Histogram(bounds=self._bounds, counts=tuple(self._counts))

    def render(self) -> str:
        """The exposition; buckets are cumulative."""
        totals = list(accumulate(self._counts))
        bounds = (*map(str, self._bounds), "+Inf")
        samples = [
            sample(f"{self._name}_bucket", {**self._base, "le": bound}, total)
            for bound, total in zip(bounds, totals, strict=True)
        ]
        samples.append(sample(f"{self._name}_sum", self._base, self._sum))
        samples.append(sample(f"{self._name}_count", self._base, totals[-1]))
        return family(self._name, "histogram", self._text, samples)


class FrontendMetrics:
    """Everything that /metrics of a frontend shows."""

    def __init__(self, model_name: str) -> None:
        base = {"model_name": model_name}
        self.running = Gauge("vllm:num_requests_running", "Requests in flight.", base)
        self.first_token = Histogram(
            "vllm:time_to_first_token_seconds", "From request to first token.", base, FIRST_TOKEN_BUCKETS
        )
        self.per_token = Histogram(
            "vllm:time_per_output_token_seconds", "Between tokens of an answer.", base, PER_TOKEN_BUCKETS
        )
        self.end_to_end = Histogram(
            "vllm:e2e_request_latency_seconds", "From request to last token.", base, END_TO_END_BUCKETS
        )
        self.finished = Counter("vllm:request_success_total", "Answers that ended well, by reason.", base)
        self.prompt_tokens = Counter("vllm:prompt_tokens_total", "Prompt tokens of answered requests.", base)
        self.generation_tokens = Counter("vllm:generation_tokens_total", "Tokens generated.", base)
        self.retries = Counter("xdeepserve:request_retries_total", "Attempts repeated before a token was sent.", base)
        self.unserved = Counter("xdeepserve:requests_unserved_total", "Requests that found no instance.", base)
        self.http_requests = Counter("xdeepserve:http_requests_total", "HTTP requests, by route and status.", base)

    def render(self) -> str:
        """The whole page."""
        return "".join(metric.render() for metric in vars(self).values())


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
            metrics.per_token.observe((now - before) / tokens, tokens)
        metrics.end_to_end.observe(self._clock() - self._started)
        metrics.finished.add(finished_reason=event.finish_reason)
        metrics.prompt_tokens.add(prompt_tokens)
        metrics.generation_tokens.add(sum(tokens for _, tokens in self._arrivals))
