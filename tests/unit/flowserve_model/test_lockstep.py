"""What a lockstep engine relies on: company changes no row, many ranks are as good as one, idle ranks take part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from flowserve.cache import BlockPool, OutOfBlocks, SequenceKV
from flowserve.model import (
    ExpertWeights,
    FloatArray,
    IntArray,
    LocalExperts,
    Model,
    Steps,
    Weights,
    combine,
    run_experts,
)

from .driver import finish

LENGTHS = (3, 16, 17, 40, 127, 128, 129, 200)


class SpreadExperts:
    """Experts in two halves; each row goes to its half, as dispatch would send it, and waits once on the way."""

    def __init__(self, weights: Weights) -> None:
        count = weights.config.n_routed_experts
        self.halves = [ExpertWeights(weights, range(count // 2)), ExpertWeights(weights, range(count // 2, count))]
        self.boundary = count // 2

    def __call__(self, layer: int, x: FloatArray, expert_ids: IntArray, weights: FloatArray) -> Steps[FloatArray]:
        yield
        flat = expert_ids.reshape(-1)
        copies = x.repeat(expert_ids.shape[1], axis=0)
        rows = np.empty_like(copies)
        for half, mine in zip(self.halves, (flat < self.boundary, flat >= self.boundary), strict=True):
            rows[mine] = run_experts(half, layer, copies[mine], flat[mine])
        return combine(rows.reshape(*expert_ids.shape, x.shape[1]), weights)


class CountingExperts:
    """Remembers the layers it was called for and how many tokens came."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def __call__(self, layer: int, x: FloatArray, expert_ids: IntArray, weights: FloatArray) -> Steps[FloatArray]:
        self.calls.append((layer, len(x)))
        yield
        return np.zeros_like(x)


def prompts() -> list[IntArray]:
    draw = np.random.default_rng(1)
    return [draw.integers(3, 320, length, dtype=np.int32) for length in LENGTHS]


def started(model: Model, local: LocalExperts, pool: BlockPool) -> list[SequenceKV]:
    sequences = []
    for tokens in prompts():
        seq = SequenceKV(pool)
        finish(model.prefill(tokens, 0, seq, local))
        sequences.append(seq)
    return sequences


def step(model: Model, experts: LocalExperts | SpreadExperts, seqs: Sequence[SequenceKV], tokens: Sequence[int]):
    """The logits of one decode step, which is then undone."""
    positions = np.array([seq.length for seq in seqs], np.int32)
    logits = finish(model.decode(np.array(tokens, np.int32), positions, seqs, experts))
    for seq, length in zip(seqs, positions.tolist(), strict=True):
        seq.truncate(length)
    return logits


def test_a_decode_row_is_the_same_bit_for_bit_in_any_batch(model: Model, local: LocalExperts, pool: BlockPool) -> None:
    sequences = started(model, local, pool)
    tokens = [5, 90, 17, 200, 31, 319, 64, 123]
    alone = [step(model, local, [seq], [token])[0] for seq, token in zip(sequences, tokens, strict=True)]
    draw = np.random.default_rng(2)
    for size in range(1, 9):
        rows = draw.permutation(8)[:size]
        batch = step(model, local, [sequences[row] for row in rows], [tokens[row] for row in rows])
        for place, row in enumerate(rows):
            np.testing.assert_array_equal(batch[place], alone[row])


def test_large_batches_change_no_bit_either(weights: Weights, local: LocalExperts, pool: BlockPool) -> None:
    model, alone = Model(weights, max_batch=32), []
    tokens = np.random.default_rng(6).integers(3, 320, 32, dtype=np.int32)
    sequences = [SequenceKV(pool) for _ in tokens]
    for number, seq in enumerate(sequences):
        finish(model.prefill(tokens[: number % 7 + 1], 0, seq, local))
        alone.append(step(model, local, [seq], tokens[number : number + 1])[0])
    for size in (9, 16, 31, 32):
        np.testing.assert_array_equal(step(model, local, sequences[:size], tokens[:size]), alone[:size])


def test_batches_share_the_plans_of_few_sizes_and_repeat_themselves(
    weights: Weights, local: LocalExperts, pool: BlockPool
) -> None:
    model = Model(weights, max_batch=8)
    sequences = started(model, local, pool)
    draws = np.random.default_rng(4).integers(3, 320, (8, 8))
    runs = []
    for _ in range(2):  # the second time every plan is dirty from another size
        runs.append([step(model, local, sequences[:size], draws[size - 1, :size]) for size in (8, 1, 3, 7, 2, 5)])
    for first, second in zip(*runs, strict=True):
        np.testing.assert_array_equal(first, second)
    assert len(model.plans) == 4, "2, 4, 6 and 8 rows"


def test_experts_spread_over_ranks_give_the_result_of_one_process(
    model: Model, local: LocalExperts, pool: BlockPool, weights: Weights
) -> None:
    spread = SpreadExperts(weights)
    sequences = started(model, local, pool)
    tokens = [7] * 8
    np.testing.assert_array_equal(step(model, spread, sequences, tokens), step(model, local, sequences, tokens))
    prompt = prompts()[4]
    for seq in sequences:
        seq.free()
    one = finish(model.prefill(prompt, 0, SequenceKV(pool), local))
    two = finish(model.prefill(prompt, 0, SequenceKV(pool), spread))
    np.testing.assert_allclose(two, one, rtol=0, atol=1e-4)


def test_idle_and_busy_ranks_meet_in_the_same_collectives(model: Model, local: LocalExperts, pool: BlockPool) -> None:
    none = np.empty(0, np.int32)
    busy, no_chunk, no_batch = CountingExperts(), CountingExperts(), CountingExperts()
    finish(model.prefill(np.array([5, 6], np.int32), 0, SequenceKV(pool), busy))
    untouched = SequenceKV(pool)
    assert finish(model.prefill(none, 0, untouched, no_chunk)).shape == (0,)
    assert untouched.length == 0
    assert finish(model.decode(none, none, [], no_batch)).shape == (0, 320)
    assert [layer for layer, _ in busy.calls] == [1, 2, 3]
    assert no_chunk.calls == no_batch.calls == [(1, 0), (2, 0), (3, 0)]


def test_padding_is_never_routed(model: Model, local: LocalExperts, pool: BlockPool) -> None:
    counting = CountingExperts()
    sequences = started(model, local, pool)[:3]
    finish(model.decode(np.array([4, 5, 6], np.int32), np.array(LENGTHS[:3], np.int32), sequences, counting))
    assert counting.calls == [(1, 3), (2, 3), (3, 3)]


def test_local_experts_take_no_tokens(local: LocalExperts) -> None:
    empty = finish(local(1, np.empty((0, 64), np.float32), np.empty((0, 4), np.int32), np.empty((0, 4), np.float32)))
    assert empty.shape == (0, 64)


def test_a_step_that_does_not_fit_changes_nothing(model: Model, local: LocalExperts) -> None:
    pool = model.new_pool(num_blocks=3, block_size=4)
    sequences = [SequenceKV(pool), SequenceKV(pool)]
    for seq in sequences:
        finish(model.prefill(np.array([5, 6, 7, 8], np.int32), 0, seq, local))
    counting = CountingExperts()
    with pytest.raises(OutOfBlocks):
        finish(model.decode(np.array([5, 5], np.int32), np.array([4, 4], np.int32), sequences, counting))
    assert not counting.calls
    assert [seq.length for seq in sequences] == [4, 4]
    assert pool.free_blocks == 1


@pytest.mark.parametrize(
    ("tokens", "positions", "message"),
    [
        ([320], [0], "tokens must be in 0..319"),
        ([-1], [0], "tokens must be in 0..319"),
        ([5], [3], "position 3 does not follow a sequence of 0 tokens"),
        ([5], [4096], "position 4096 is above 4095"),
        ([5] * 9, [0] * 9, "9 rows is above the model's 8"),
    ],
)
def test_impossible_steps_are_refused(
    model: Model, local: LocalExperts, pool: BlockPool, tokens: list[int], positions: list[int], message: str
) -> None:
    sequences = [SequenceKV(pool) for _ in tokens]
    with pytest.raises(ValueError, match=message):
        finish(model.decode(np.array(tokens, np.int32), np.array(positions, np.int32), sequences, local))
    assert pool.usage == 0
