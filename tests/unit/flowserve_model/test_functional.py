"""The small functions agree with their definitions at float32 precision, without a warning at any finite input."""

from __future__ import annotations

import numpy as np

from flowserve.model.functional import gated, rms_norm, sigmoid, softmax_inplace

WIDE = np.concatenate([np.linspace(-79, 79, 101), [-3e38, -1e4, -200, -0.0, 200, 1e4, 3e38]]).astype(np.float32)


def test_sigmoid_keeps_its_relative_precision() -> None:
    exact = 1.0 / (1.0 + np.exp(-np.clip(WIDE, -80, 700).astype(np.float64)))
    np.testing.assert_allclose(sigmoid(WIDE), exact, rtol=1e-6)


def test_gated_is_silu_times_up() -> None:
    gate, up = WIDE[WIDE < 1e30], np.float32(1.5)
    exact = gate / (1.0 + np.exp(-np.clip(gate, -700, None).astype(np.float64))) * up
    np.testing.assert_allclose(
        gated(np.stack([gate, np.full_like(gate, up)], axis=1))[:, 0], exact, rtol=1e-6, atol=1e-4
    )


def test_rms_norm_has_unit_power_and_survives_zero() -> None:
    x = np.array([[3, 4], [0, 0], [-1e-3, 1e-3]], np.float32)
    weight = np.array([1, 2], np.float32)
    exact = x / np.sqrt((x.astype(np.float64) ** 2).mean(axis=1, keepdims=True) + 1e-6) * weight
    np.testing.assert_allclose(rms_norm(x, weight, 1e-6), exact, rtol=1e-6)


def test_softmax_leaves_nothing_for_what_is_masked() -> None:
    scores = np.array([[1e4, -np.inf, 1e4], [-np.inf, 5, -np.inf]], np.float32)
    softmax_inplace(scores)
    np.testing.assert_array_equal(scores, [[0.5, 0, 0.5], [0, 1, 0]])
