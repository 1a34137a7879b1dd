"""The pool's accounts always balance, whatever its users do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from flowserve.cache import BlockPool, OutOfBlocks, SequenceKV

BLOCKS, BLOCK = 12, 3


class Holders(RuleBasedStateMachine):
    """Sequences that come, grow, fork, shrink and go, beside a model of what each should contain."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(BLOCKS, BLOCK, layers=2, width=1)
        self.holders: list[tuple[SequenceKV, list[float]]] = []
        self.stamp = 0.0

    def pick(self, data: st.DataObject) -> int:
        return data.draw(st.integers(0, len(self.holders) - 1), label="which")

    @rule()
    def start(self) -> None:
        self.holders.append((SequenceKV(self.pool), []))

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), tokens=st.integers(0, 8))
    def append(self, data: st.DataObject, tokens: int) -> None:
        seq, expected = self.holders[self.pick(data)]
        try:
            seq.append(tokens)
        except OutOfBlocks:
            return
        self.stamp += 1
        blocks, offsets = seq.slots(len(expected), tokens)
        self.pool.data[:, blocks, offsets] = self.stamp
        expected += [self.stamp] * tokens

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), tokens=st.integers(0, 20))
    def reserve(self, data: st.DataObject, tokens: int) -> None:
        seq, _ = self.holders[self.pick(data)]
        fits = self.pool.blocks_for(tokens) - len(seq.blocks) <= self.pool.free_blocks
        try:
            seq.reserve(tokens)
        except OutOfBlocks:
            assert not fits
        else:
            assert fits

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        seq, expected = self.holders[self.pick(data)]
        self.holders.append((seq.fork(), list(expected)))

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        seq, expected = self.holders[self.pick(data)]
        length = data.draw(st.integers(0, len(expected)), label="length")
        seq.truncate(length)
        del expected[length:]

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        seq, _ = self.holders.pop(self.pick(data))
        seq.free()
        assert seq.length == 0

    @invariant()
    def contents_are_each_holder_s_own(self) -> None:
        for seq, expected in self.holders:
            assert seq.length == len(expected)
            assert seq.export()[1, :, 0].tolist() == expected

    @invariant()
    def no_block_leaks(self) -> None:
        held = {block for seq, _ in self.holders for block in seq.blocks}
        assert self.pool.free_blocks == BLOCKS - len(held)
        assert self.pool.usage == pytest.approx(len(held) / BLOCKS)
        assert self.pool.can_fit(self.pool.free_blocks * BLOCK)
        assert not self.pool.can_fit(self.pool.free_blocks * BLOCK + 1)

    @invariant()
    def the_null_block_stays_zero(self) -> None:
        assert not self.pool.data[:, self.pool.null_block].any()


TestHolders = Holders.TestCase
TestHolders.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_block_is_handed_out_zeroed() -> None:
    pool = BlockPool(1, 2, layers=2, width=2)
    (block,) = pool.allocate(1)
    pool.data[:, block] = np.nan
    pool.release([block])
    (block,) = pool.allocate(1)
    assert not pool.data[:, block].any()


def test_more_blocks_than_there_are_are_refused_whole() -> None:
    pool = BlockPool(3, 2, layers=1, width=1)
    pool.allocate(2)
    with pytest.raises(OutOfBlocks, match="2 blocks asked for, 1 of 3 are free"):
        pool.allocate(2)
    assert pool.free_blocks == 1


def test_a_free_block_can_be_neither_released_nor_shared() -> None:
    pool = BlockPool(2, 2, layers=1, width=1)
    blocks = pool.allocate(1)
    pool.release(blocks)
    with pytest.raises(ValueError, match="is free already"):
        pool.release(blocks)
    with pytest.raises(ValueError, match="cannot be shared"):
        pool.share(blocks)


def test_a_pool_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="0 blocks of 16 × 4 × 24 makes no sense"):
        BlockPool(0, 16, 4, 24)
