"""GPTQ and SmoothQuant do what they are for, and change nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from flowserve.quant.gptq import gptq
from flowserve.quant.smooth import _error, smoothing

DRAW = np.random.default_rng(0)


def correlated(rows: int, width: int) -> np.ndarray:
    return DRAW.standard_normal((rows, width // 4)) @ DRAW.standard_normal((width // 4, width)) + 0.1


def error(x: np.ndarray, weight: np.ndarray, codes: np.ndarray, scales: np.ndarray) -> float:
    return float(np.linalg.norm(x @ (weight - codes * scales[:, None]).T))


def test_gptq_is_better_than_rounding_on_inputs_that_hang_together() -> None:
    x, weight = correlated(500, 64), DRAW.standard_normal((48, 64))
    codes, scales = gptq(weight, x.T @ x)
    assert codes.dtype == np.int8
    assert np.abs(codes).max() <= 127
    nearest = np.rint(weight / scales[:, None])
    assert error(x, weight, codes, scales) < 0.6 * error(x, weight, nearest, scales)


@pytest.mark.parametrize("rows", [0, 1, 4])
def test_few_samples_do_no_harm(rows: int) -> None:
    x, weight = correlated(rows, 32), DRAW.standard_normal((16, 32))
    codes, scales = gptq(weight, x.T @ x)
    assert np.abs(weight - codes * scales[:, None]).max() < 3 * scales.max()


def test_a_weight_of_zeros_stays_zero() -> None:
    codes, scales = gptq(np.zeros((3, 5)), np.eye(5))
    assert not codes.any()
    assert np.isfinite(scales).all()


def test_smoothing_takes_outliers_out_of_the_inputs() -> None:
    rows = DRAW.standard_normal((64, 32)).astype(np.float32)
    rows[:, 3] *= 100.0
    rows[:, 7] = 0.0
    weights = [DRAW.standard_normal((24, 32)).astype(np.float32) for _ in range(2)]
    factors = smoothing(rows, np.abs(rows).max(axis=0), weights)
    assert factors[3] > 2 * np.median(factors)
    assert _error(rows, weights, factors) < 0.5 * _error(rows, weights, np.ones(32, np.float32))
    assert (factors > 0).all()
    assert np.isfinite(factors).all()


def test_inputs_without_outliers_are_left_alone_or_come_out_better() -> None:
    rows = DRAW.uniform(-1, 1, (64, 32)).astype(np.float32)
    weight = DRAW.standard_normal((24, 32)).astype(np.float32)
    weight[:, 5] *= 100.0
    factors = smoothing(rows, np.abs(rows).max(axis=0), [weight])
    assert _error(rows, [weight], factors) <= _error(rows, [weight], np.ones(32, np.float32))
