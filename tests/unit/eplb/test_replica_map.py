"""Which copy a token takes: evenly, the same result with and without, and nobody unreachable."""

import numpy as np
import pytest

from eplb import EMPTY, ReplicaMap, Unplannable
from eplb.replica_map import FEW

SLOTS = np.array([[0, 1], [0, 2], [0, EMPTY], [1, 3]])


def test_copies_of_an_expert_get_the_same_number_of_tokens_give_or_take_one() -> None:
    rng = np.random.default_rng(1)
    ids = rng.choice(4, size=(997, 2), p=[0.6, 0.25, 0.1, 0.05])
    mapped = ReplicaMap.of(SLOTS, 4).physical(ids)
    assert (SLOTS.ravel()[mapped] == ids).all()
    for expert in range(4):
        counts = np.bincount(mapped[ids == expert], minlength=8)[SLOTS.ravel() == expert]
        assert counts.max() - counts.min() <= 1


def test_ranks_start_at_different_copies() -> None:
    map_ = ReplicaMap.of(SLOTS, 4)
    one_token_each = [int(map_.physical(np.array([[0]]), rank)[0, 0]) for rank in range(6)]
    assert sorted(one_token_each) == [0, 0, 2, 2, 4, 4]


def test_by_position_is_replica_number_position_modulo_copies() -> None:
    mapped = ReplicaMap.of(SLOTS, 4).by_position(np.array([[0, 1], [0, 1], [0, 2], [0, 3]]))
    assert mapped.tolist() == [[0, 1], [2, 6], [4, 3], [0, 7]]


def test_an_output_is_the_same_with_and_without_copies() -> None:
    rng = np.random.default_rng(2)
    weights, tokens = rng.normal(size=(4, 8, 8)), rng.normal(size=(50, 8))
    ids = np.argsort(rng.random((50, 4)), axis=1)[:, :2]
    physical = weights[np.where(SLOTS.ravel() == EMPTY, 0, SLOTS.ravel())]
    mapped = ReplicaMap.of(SLOTS, 4).physical(ids)
    plain = np.einsum("td,tkde->te", tokens, weights[ids])
    assert np.array_equal(np.einsum("td,tkde->te", tokens, physical[mapped]), plain)


def test_a_slot_that_is_switched_off_gets_nothing_and_a_last_copy_cannot_be() -> None:
    mapped = ReplicaMap.of(SLOTS, 4, disabled=frozenset({2})).physical(np.zeros((30, 1), np.int64))
    assert set(mapped.ravel().tolist()) == {0, 4}
    with pytest.raises(Unplannable, match="expert 2 would have no copy"):
        ReplicaMap.of(SLOTS, 4, disabled=frozenset({3}))


def test_an_empty_batch_maps_to_nothing() -> None:
    assert ReplicaMap.of(SLOTS, 4).physical(np.zeros((0, 2), np.int64)).shape == (0, 2)


def test_few_and_many_assignments_are_dealt_out_alike() -> None:
    """The two ways to count how often an expert came before give the same turns."""
    ids = np.random.default_rng(4).integers(0, 4, (FEW, 2))
    map_ = ReplicaMap.of(SLOTS, 4)
    many = map_.physical(ids, rank=1)
    few = map_.physical(ids[: FEW // 2], rank=1)
    assert (many[: FEW // 2] == few).all()
    assert map_.physical(ids[:0]).shape == (0, 2)
