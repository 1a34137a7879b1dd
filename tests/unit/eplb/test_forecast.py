"""What a window tells about the next: shifts, drift, and flicker that means nothing."""

import numpy as np
import pytest

from eplb import LoadWindow
from eplb.forecast import forecast
from eplb.traces.generate import generate


def test_only_what_follows_a_change_of_traffic_counts() -> None:
    rng = np.random.default_rng(1)
    before, after = rng.lognormal(0, 1, (2, 3, 32))
    rates = np.where(np.arange(20)[:, None, None] < 12, before, after) * 1000
    found = forecast(LoadWindow.of(rng.poisson(rates)))
    assert found.first == 12
    assert len(found.slices) == 8
    even = after / after.sum(1, keepdims=True)
    assert np.abs(found.mean - even).max() < 0.01


def test_the_last_of_two_changes_counts() -> None:
    rng = np.random.default_rng(2)
    domains = rng.lognormal(0, 1, (3, 2, 64)) * 1000
    rates = domains[np.repeat([0, 1, 2], 10)]
    assert forecast(LoadWindow.of(rng.poisson(rates))).first == 20


@pytest.mark.parametrize(("name", "drifts"), [("paper", True), ("correlated", False)])
def test_drift_is_told_from_flicker(name: str, drifts: bool) -> None:
    found = forecast(generate(name).fit)
    assert found.first == 0
    assert (found.half_life is not None) == drifts


def test_one_outlier_is_no_change_of_traffic() -> None:
    rng = np.random.default_rng(3)
    rates = np.repeat(rng.lognormal(0, 1, (1, 4, 64)) * 1000, 30, 0)
    rates[14] = rng.permuted(rates[14], axis=1)
    assert forecast(LoadWindow.of(rng.poisson(rates))).first == 0


@pytest.mark.parametrize("slices", [1, 2, 5])
def test_few_slices_give_their_mean(slices: int) -> None:
    counts = np.random.default_rng(4).integers(1, 100, (slices, 2, 8))
    found = forecast(LoadWindow.of(counts))
    shares = counts / counts.sum(2, keepdims=True)
    assert found.mean == pytest.approx(shares.mean(0), rel=1e-5)
    assert np.isfinite(found.covariance).all()
    if slices == 1:
        assert not found.covariance.any()
