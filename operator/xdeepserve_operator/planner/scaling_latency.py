"""Latencies of the last while, from counters that only grow.

Each frontend reports histograms counted since it started. ``Window`` keeps the sums seen over the last ``seconds`` and
answers with the difference; a frontend that started anew (another incarnation) counts from nothing. A percentile is the
upper bound of the bucket it falls into, so it errs on the slow side.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flowserve.wire import FrontendStatus, Histogram

Statuses = Mapping[tuple[str, str], FrontendStatus]  # by address and incarnation of the frontend


@dataclass(frozen=True, slots=True)
class Latency:
    """What the clients of the last while saw; milliseconds, None without a sample."""

    ttft: float | None = None
    tpot: float | None = None
    answers: int = 0
    refused: int = 0  # requests that found no instance
    news: int = 0  # of both, those since the look before


@dataclass
class Window:
    """Samples of one deployment's frontends; times are seconds that never jump."""

    seconds: float = 30.0
    _samples: deque[tuple[float, Statuses]] = field(default_factory=deque)

    def add(self, now: float, statuses: Mapping[str, FrontendStatus]) -> None:
        """Takes what the frontends, by address, say now."""
        self._samples.append((now, {(host, one.incarnation): one for host, one in statuses.items()}))
        while len(self._samples) > 2 and self._samples[1][0] <= now - self.seconds:
            self._samples.popleft()

    def latency(self, percentile: int) -> Latency:
        """Percentiles and counts between the oldest and the newest sample."""
        if len(self._samples) < 2:
            return Latency()
        (_, old), (_, before), (_, new) = self._samples[0], self._samples[-2], self._samples[-1]
        first = _first_tokens(new, old)
        return Latency(
            ttft=percentile_of(first, percentile),
            tpot=percentile_of(_per_tokens(new, old), percentile),
            answers=_count(first),
            refused=_refused(new, old),
            news=_count(_first_tokens(new, before)) + _refused(new, before),
        )


def percentile_of(histograms: Sequence[Histogram], percentile: int) -> float | None:
    """Milliseconds below which that share of all samples lies; None without any. Buckets must agree."""
    filled = [one for one in histograms if sum(one.counts)]
    if not filled:
        return None
    bounds = filled[0].bounds
    totals = [sum(column) for column in zip(*(one.counts for one in filled if one.bounds == bounds), strict=True)]
    wanted, seen = sum(totals) * percentile / 100, 0
    for bound, count in zip((*bounds, bounds[-1]), totals, strict=True):
        seen += count
        if seen >= wanted:
            return bound * 1000
    return bounds[-1] * 1000


def _since(new: Histogram, old: Histogram | None) -> Histogram:
    if old is None or old.bounds != new.bounds:
        return new
    counts = tuple(max(0, now - before) for now, before in zip(new.counts, old.counts, strict=True))
    return Histogram(bounds=new.bounds, counts=counts)


def _first_tokens(new: Statuses, old: Statuses) -> list[Histogram]:
    return [_since(one.first_token, old[key].first_token if key in old else None) for key, one in new.items()]


def _per_tokens(new: Statuses, old: Statuses) -> list[Histogram]:
    return [_since(one.per_token, old[key].per_token if key in old else None) for key, one in new.items()]


def _refused(new: Statuses, old: Statuses) -> int:
    return sum(one.refused - (old[key].refused if key in old else 0) for key, one in new.items())


def _count(histograms: Sequence[Histogram]) -> int:
    return sum(sum(one.counts) for one in histograms)
