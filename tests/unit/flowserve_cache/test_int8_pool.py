"""Rows come back close to what was stored, and exactly when they are stored again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowserve.cache import Int8BlockPool, SequenceKV

COMPRESSED, WIDTH = 12, 16


def pool() -> Int8BlockPool:
    return Int8BlockPool(6, 4, 2, WIDTH, COMPRESSED)


@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-6, 1.0, 1e4]))
def test_rows_lose_half_a_step_once(seed: int, size: float) -> None:
    rows = (np.random.default_rng(seed).standard_normal((2, 10, WIDTH)) * size).astype(np.float32)
    rows[0, 3] = 0.0
    first, second = SequenceKV(pool()), SequenceKV(pool())
    first.load(rows)
    once = first.export()
    largest = np.abs(rows[..., :COMPRESSED]).max(axis=2, keepdims=True)
    assert (np.abs(once - rows)[..., :COMPRESSED] <= largest / 127 * 0.501).all()
    assert np.allclose(once[..., COMPRESSED:], rows[..., COMPRESSED:], rtol=1e-3, atol=1e-7)
    assert not once[0, 3].any()
    second.load(once)
    np.testing.assert_array_equal(second.export()[..., COMPRESSED:], once[..., COMPRESSED:])
    np.testing.assert_allclose(second.export(), once, rtol=1e-6)


def test_a_fork_keeps_its_own_rows() -> None:
    first = SequenceKV(pool())
    first.load(np.ones((2, 6, WIDTH), np.float32))
    second = first.fork()
    second.load(np.full((2, 1, WIDTH), 5.0, np.float32))
    first.load(np.full((2, 1, WIDTH), 3.0, np.float32))
    np.testing.assert_allclose(first.export()[:, 6], 3.0, rtol=1e-6)
    np.testing.assert_allclose(second.export()[:, 6], 5.0, rtol=1e-6)


def test_a_block_is_empty_when_it_is_handed_out_again() -> None:
    used = pool()
    sequence = SequenceKV(used)
    sequence.load(np.ones((2, 24, WIDTH), np.float32))
    sequence.free()
    sequence.append(24)
    assert not sequence.export().any()


def test_a_row_cannot_be_compressed_beyond_its_width() -> None:
    with pytest.raises(ValueError, match="17 of 16 elements"):
        Int8BlockPool(1, 1, 1, 16, 17)
