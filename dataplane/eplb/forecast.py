"""What the next window will look like, as far as the last one tells.

A plan is made on one window and used in the next, so fitting the last one's noise is worse than useless. Three steps:

1. Shift. Square roots of shares are compared before and after every slice (Hellinger distance, three slices a side). A
   change of traffic shows as a peak far above the median: what was before it says nothing about what follows. The
   peak must stand with medians for means too, or it is a single odd slice.
2. Trend. Exponentially weighted means are tried on the window itself: which of them would have predicted its last third
   best, with the first two thirds known? Where load drifts recent slices win, where it only flickers the plain mean.
3. Spread. The covariance of the slices. Where nothing persists, one expert's observed spread is mostly chance, and all
   experts of a layer get the spread that is common to them, relative to their mean; who is hot together with whom (the
   correlations) is kept.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eplb.load import LoadWindow

SIDE = 3  # slices compared before and after a possible shift
SHIFT = 10.0  # times the median distance
HALF_LIVES = (12.0, 6.0, 3.0, 1.5)  # slices
TREND_GAIN = 0.9  # a trend is believed if it predicts with at most this part of the mean's error
TREND_WEIGHT = 0.5  # of the trend against the mean: drift may turn back
SPREAD_LIMIT = 10.0  # an expert's spread is corrected by this factor at most
TINY = 1e-30


@dataclass(frozen=True, eq=False)
class Forecast:
    """``mean`` [layers, experts] and ``covariance`` [layers, experts, experts], float32, of shares of a layer's tokens.

    ``slices`` [slices, layers, experts], float32: the shares of the slices since the last shift. ``first``: the first
    of those in the window. ``half_life``: of the trend, in slices; None where nothing persists.
    """

    mean: NDArray[np.float32]
    covariance: NDArray[np.float32]
    slices: NDArray[np.float32]
    first: int
    half_life: float | None


def forecast(window: LoadWindow) -> Forecast:
    """The forecast of a window; one slice gives its own shares and no spread."""
    shares = window.shares()
    first = last_shift(shares)
    shares = shares[first:]
    mean, half_life = shares.mean(0), trend(shares)
    expected = mean
    if half_life is not None:
        expected = mean ** (1 - TREND_WEIGHT) * _recent(shares, half_life) ** TREND_WEIGHT
        expected = expected / np.maximum(expected.sum(1, keepdims=True), TINY)
    covariance = _covariance(mean, shares)
    if half_life is None:
        covariance = _common_spread(mean, covariance)
    return Forecast(
        mean=expected.astype(np.float32),
        covariance=covariance,
        slices=shares.astype(np.float32),
        first=first,
        half_life=half_life,
    )


def last_shift(shares: NDArray[np.float64]) -> int:
    """First slice after the last change of traffic, 0 if there is none; shares [slices, layers, experts]."""
    roots = np.sqrt(shares)
    places = range(SIDE, len(shares) - SIDE + 1)
    distances = np.array([_distance(roots[at - SIDE : at], roots[at : at + SIDE]) for at in places])
    if len(distances) < 2 * SIDE:
        return 0
    limit = SHIFT * max(float(np.median(distances)), TINY)
    peaks = [
        at
        for at, value in zip(places, distances, strict=True)
        if value > limit
        and value == distances[max(0, at - 2 * SIDE) : at].max()
        and _distance(roots[at - SIDE : at], roots[at : at + SIDE], np.median) > limit
    ]
    return peaks[-1] if peaks else 0


def _distance(
    before: NDArray[np.float64], after: NDArray[np.float64], middle: Callable[..., NDArray[np.float64]] = np.mean
) -> float:
    return float(((middle(before, axis=0) - middle(after, axis=0)) ** 2).sum())


def trend(shares: NDArray[np.float64]) -> float | None:
    """The half-life that would have predicted the last third of the slices best, None if the plain mean does."""
    cut = len(shares) - len(shares) // 3
    if len(shares) < 2 * SIDE:
        return None
    seen, outcome = shares[:cut], np.sqrt(shares[cut:].mean(0))
    errors = {half: float(((np.sqrt(_recent(seen, half)) - outcome) ** 2).sum()) for half in HALF_LIVES}
    best = min(errors, key=lambda half: errors[half])
    plain = float(((np.sqrt(seen.mean(0)) - outcome) ** 2).sum())
    return best if errors[best] < TREND_GAIN * plain else None


def _recent(shares: NDArray[np.float64], half_life: float) -> NDArray[np.float64]:
    weight = 0.5 ** (np.arange(len(shares))[::-1] / half_life)
    return np.asarray(np.tensordot(weight / weight.sum(), shares, 1))


def _covariance(mean: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float32]:
    deviation = np.ascontiguousarray((shares - mean).transpose(1, 2, 0), np.float32)
    return np.asarray(deviation @ deviation.transpose(0, 2, 1) / np.float32(max(1, len(shares) - 1)))


def _common_spread(mean: NDArray[np.float64], covariance: NDArray[np.float32]) -> NDArray[np.float32]:
    own = np.sqrt(np.einsum("lee->le", covariance))
    relative = np.sqrt((own**2).sum(1) / np.maximum((mean**2).sum(1), TINY))
    factor = np.minimum(relative[:, None] * mean / np.maximum(own, TINY), SPREAD_LIMIT).astype(np.float32)
    return np.asarray(covariance * factor[:, :, None] * factor[:, None, :])
