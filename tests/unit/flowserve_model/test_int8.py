"""INT8 products are exact sums of integers, row by row, and close to what they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowserve.model.int8 import EXACT_INNER, PanelInt8, int8_linear, integer_product, quantise_rows
from flowserve.model.linear import panels_of


def exact(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x.astype(np.int64) @ weight.T.astype(np.int64)


def product(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    panels = panels_of(weight)
    out = np.empty((len(x), panels.shape[0], panels.shape[2]), np.float32)
    integer_product(x, panels, out.swapaxes(0, 1))
    return out.reshape(len(x), -1)[:, : len(weight)]


@pytest.mark.parametrize("rows", [2, 8, 32])
@pytest.mark.parametrize(("inner", "outer"), [(160, 144), (48, 320), (EXACT_INNER, 96), (33, 7)])
def test_sums_are_those_of_int64(rows: int, inner: int, outer: int) -> None:
    draw = np.random.default_rng(inner)
    x = draw.integers(-127, 128, (rows, inner)).astype(np.float32)
    weight = draw.integers(-127, 128, (outer, inner)).astype(np.int8)
    np.testing.assert_array_equal(product(x, weight), exact(x, weight))


def test_the_largest_sum_there_is_is_exact() -> None:
    """One in any order of adding: all 127, then one product less, which an inexact sum would swallow."""
    x = np.full((2, EXACT_INNER), 127, np.float32)
    weight = np.full((16, EXACT_INNER), 127, np.int8)
    x[1, -1], weight[1, 0] = 126, -127
    np.testing.assert_array_equal(product(x, weight), exact(x, weight))


@pytest.mark.parametrize("inner", [EXACT_INNER + 1, 3 * EXACT_INNER + 5, 7168])
def test_longer_sums_are_rounded_once(inner: int) -> None:
    draw = np.random.default_rng(inner)
    x = draw.integers(100, 128, (4, inner)).astype(np.float32)
    weight = draw.integers(100, 128, (32, inner)).astype(np.int8)
    np.testing.assert_array_equal(product(x, weight), exact(x, weight).astype(np.float32))


@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-20, 1e-3, 1.0, 1e20]))
def test_rows_are_quantised_to_half_a_step(seed: int, size: float) -> None:
    x = (np.random.default_rng(seed).standard_normal((5, 24)) * size).astype(np.float32)
    x[2] = 0.0
    integers, scales = quantise_rows(x)
    assert np.abs(integers).max() <= 127
    assert (integers == np.rint(integers)).all()
    assert (np.abs(integers * scales - x) <= scales * 0.501).all()
    assert not integers[2].any()


def example(inner: int, outer: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(inner * outer)
    weight = draw.integers(-127, 128, (outer, inner)).astype(np.int8)
    return weight, draw.random(outer, dtype=np.float32)


ways = pytest.mark.parametrize("way", [PanelInt8, int8_linear])


@ways
@pytest.mark.parametrize("rows", [1, 2, 3, 8, 9, 33])
@pytest.mark.parametrize(("inner", "outer"), [(160, 144), (33, 7), (1, 1), (2048, 40)])
def test_a_projection_is_the_exact_product_of_what_was_rounded(
    way: type[PanelInt8], rows: int, inner: int, outer: int
) -> None:
    weight, steps = example(inner, outer)
    x = np.random.default_rng(rows).standard_normal((rows, inner)).astype(np.float32)
    integers, scales = quantise_rows(x)
    expected = exact(integers, weight).astype(np.float32) * steps * scales
    np.testing.assert_array_equal(way(weight, steps)(x), expected)


@ways
def test_a_row_is_the_same_bit_for_bit_among_any_others(way: type[PanelInt8]) -> None:
    linear = way(*example(64, 100))
    x = np.random.default_rng(4).standard_normal((17, 64)).astype(np.float32)
    together = linear(x)
    for rows in (slice(3, 4), slice(0, 2), slice(5, 12), slice(1, 17)):
        np.testing.assert_array_equal(linear(x[rows]), together[rows])


def test_the_compiled_way_checks_its_sizes() -> None:
    linear = int8_linear(*example(64, 100))
    if isinstance(linear, PanelInt8):
        pytest.skip("this processor, or this installation, has the interpreted way only")
    codes, scales = linear.quantise(np.ones((3, 64), np.float32))
    for wrong in ((codes[:2], scales, np.empty((3, 100), np.float32)), (codes, scales, np.empty((3, 99), np.float32))):
        with pytest.raises(ValueError, match="do not belong together"):
            linear.multiply(*wrong)
