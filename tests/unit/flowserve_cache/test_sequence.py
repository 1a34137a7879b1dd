"""Sequences over a pool: contents survive growing, sharing, undoing and moving."""

from __future__ import annotations

import numpy as np
import pytest

from flowserve.cache import BlockPool, OutOfBlocks, SequenceKV

LAYERS, WIDTH, BLOCK = 2, 3, 4


def fill(seq: SequenceKV, tokens: int, value: float) -> None:
    """Appends `tokens` tokens whose rows all hold `value`."""
    start = seq.length
    seq.append(tokens)
    blocks, offsets = seq.slots(start, tokens)
    seq.pool.data[:, blocks, offsets] = value


def values(seq: SequenceKV) -> list[float]:
    """One number a token; every layer and place must hold the same."""
    exported = seq.export()
    assert (exported == exported[:1, :, :1]).all()
    return exported[0, :, 0].tolist()


@pytest.fixture
def pool() -> BlockPool:
    return BlockPool(8, BLOCK, LAYERS, WIDTH)


def test_tokens_are_read_in_the_order_they_were_appended(pool: BlockPool) -> None:
    seq = SequenceKV(pool)
    for step in range(10):
        fill(seq, 1, step)
    assert values(seq) == list(range(10))
    assert pool.usage == 3 / 8


def test_truncating_gives_blocks_back_and_keeps_the_rest(pool: BlockPool) -> None:
    seq = SequenceKV(pool)
    fill(seq, 9, 1)
    seq.truncate(5)
    fill(seq, 2, 2)
    assert values(seq) == [1] * 5 + [2] * 2
    assert pool.free_blocks == 6
    with pytest.raises(ValueError, match="cannot truncate a sequence of 7 tokens to 8"):
        seq.truncate(8)


def test_a_reservation_outlives_truncation_and_is_used_before_the_pool(pool: BlockPool) -> None:
    seq, other = SequenceKV(pool), SequenceKV(pool)
    seq.reserve(16)
    other.reserve(16)
    assert pool.usage == 1
    fill(seq, 16, 1)
    seq.truncate(0)
    fill(seq, 16, 2)
    with pytest.raises(OutOfBlocks):
        seq.append(1)
    assert values(seq) == [2] * 16


def test_a_fork_shares_blocks_until_one_side_writes(pool: BlockPool) -> None:
    seq = SequenceKV(pool)
    fill(seq, 6, 1)
    fork = seq.fork()
    assert pool.free_blocks == 6
    fill(fork, 1, 2)
    fill(seq, 1, 3)
    assert values(seq) == [1] * 6 + [3]
    assert values(fork) == [1] * 6 + [2]
    assert pool.free_blocks == 5, "only the block that was written was copied"
    seq.free()
    assert values(fork) == [1] * 6 + [2]


def test_a_fork_cut_back_into_a_shared_block_does_not_write_into_it(pool: BlockPool) -> None:
    seq = SequenceKV(pool)
    fill(seq, 8, 1)
    fork = seq.fork()
    fork.truncate(2)
    fill(fork, 2, 2)
    assert values(seq) == [1] * 8
    assert values(fork) == [1, 1, 2, 2]


def test_an_append_that_does_not_fit_changes_nothing(pool: BlockPool) -> None:
    seq = SequenceKV(pool)
    fill(seq, 30, 1)
    fork = seq.fork()
    with pytest.raises(OutOfBlocks):
        fork.append(1)
    assert fork.length == 30
    assert fork.blocks == seq.blocks
    seq.free()
    fill(fork, 1, 2)
    assert values(fork) == [1] * 30 + [2]


def test_a_sequence_moves_to_another_pool(pool: BlockPool) -> None:
    seq = SequenceKV(pool)
    for step in range(7):
        fill(seq, 1, step)
    exported = seq.export()
    assert exported.shape == (LAYERS, 7, WIDTH)
    assert exported.flags.c_contiguous
    elsewhere = SequenceKV(BlockPool(4, 2, LAYERS, WIDTH))
    elsewhere.load(exported)
    fill(elsewhere, 1, 9)
    assert values(elsewhere) == [*range(7), 9]


@pytest.mark.parametrize("shape", [(LAYERS + 1, 2, WIDTH), (LAYERS, 2, WIDTH - 1), (LAYERS, WIDTH)])
def test_kv_of_another_model_is_refused(pool: BlockPool, shape: tuple[int, ...]) -> None:
    seq = SequenceKV(pool)
    with pytest.raises(ValueError, match="does not fit a pool of 2 layers × 3"):
        seq.load(np.zeros(shape, np.float32))
    assert pool.usage == 0


def test_a_kv_too_long_for_the_pool_is_refused_whole(pool: BlockPool) -> None:
    seq = SequenceKV(pool)
    with pytest.raises(OutOfBlocks):
        seq.load(np.zeros((LAYERS, 33, WIDTH), np.float32))
    assert seq.length == 0
    assert pool.usage == 0


def test_an_empty_sequence_can_be_exported_and_loaded(pool: BlockPool) -> None:
    seq = SequenceKV(pool)
    assert seq.export().shape == (LAYERS, 0, WIDTH)
    seq.load(seq.export())
    assert pool.usage == 0
