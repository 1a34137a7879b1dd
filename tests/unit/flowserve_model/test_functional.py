"""The small functions agree with their definitions at float32 precision, without a warning at any finite input."""

from __future__ import annotations

import numpy as np
import pytest

from flowserve.model import functional
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


@pytest.fixture(params=["compiled", "interpreted"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "interpreted":
        monkeypatch.setattr(functional, "native", None)
    elif functional.native is None:
        pytest.skip("this installation has the interpreted way only")


@pytest.mark.usefixtures("way")
def test_rms_norm_has_unit_power_and_survives_zero() -> None:
    x = np.array([[3, 4], [0, 0], [-1e-3, 1e-3]], np.float32)
    weight = np.array([1, 2], np.float32)
    exact = x / np.sqrt((x.astype(np.float64) ** 2).mean(axis=1, keepdims=True) + 1e-6) * weight
    np.testing.assert_allclose(rms_norm(x, weight, 1e-6), exact, rtol=1e-6)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("width", [1, 15, 16, 33, 160])
def test_rms_norm_takes_columns_of_a_wider_array(width: int) -> None:
    wide = np.random.default_rng(width).standard_normal((3, width + 7)).astype(np.float32)
    x, weight = wide[:, 2 : 2 + width], np.linspace(0.5, 2, width, dtype=np.float32)
    exact = x / np.sqrt((x.astype(np.float64) ** 2).mean(axis=1, keepdims=True) + 1e-6) * weight
    np.testing.assert_allclose(rms_norm(x, weight, 1e-6), exact, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(rms_norm(x[1:2], weight, 1e-6)[0], rms_norm(x, weight, 1e-6)[1])


def test_the_compiled_norm_checks_its_shapes() -> None:
    if functional.native is None:
        pytest.skip("this installation has the interpreted way only")
    x, weight = np.ones((2, 8), np.float32), np.ones(8, np.float32)
    for wrong in (
        (x[0], weight, x[:1]),
        (x, weight[:7], x),
        (x, weight, np.ones((1, 8), np.float32)),
        (x.T, x[0, :2], x.T.copy()),
    ):
        with pytest.raises(ValueError, match="do not belong together"):
            functional.native.norm(wrong[0], wrong[1], 1e-6, wrong[2])


def test_softmax_leaves_nothing_for_what_is_masked() -> None:
    scores = np.array([[1e4, -np.inf, 1e4], [-np.inf, 5, -np.inf]], np.float32)
    softmax_inplace(scores)
    np.testing.assert_array_equal(scores, [[0.5, 0, 0.5], [0, 1, 0]])
