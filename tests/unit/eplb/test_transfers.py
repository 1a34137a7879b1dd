"""What travels from one placement to the next, and what is switched off meanwhile."""

import numpy as np

from eplb import EMPTY, ReplicaMap
from eplb.transfers import Transfer, switched_off, transfers


def random_layer(rng: np.random.Generator, npus: int, width: int, experts: int) -> np.ndarray:
    """A sound layer with as many copies as there is room for."""
    slots = np.full((npus, width), EMPTY, np.int64)
    order = rng.permutation(experts)
    for index, expert in enumerate(order):
        slots[index % npus, index // npus] = expert
    for npu in range(npus):
        for slot in np.flatnonzero(slots[npu] == EMPTY):
            absent = np.setdiff1d(np.arange(experts), slots[npu])
            if len(absent):
                slots[npu, slot] = rng.choice(absent)
    return slots


def test_only_what_is_not_there_travels_and_its_readers_are_dealt_out() -> None:
    before = np.array([[0, 1], [0, 2], [3, EMPTY], [4, EMPTY]])
    after = np.array([[0, 1], [2, 3], [0, 3], [4, 0]])
    assert list(transfers(7, before, after)) == [
        Transfer(7, 3, 2, 1),
        Transfer(7, 0, 0, 2),
        Transfer(7, 0, 1, 3),
    ]


def test_an_npu_that_is_to_hold_nothing_gives_what_nobody_else_has_and_no_more() -> None:
    before = np.array([[0, 1], [0, 2], [3, EMPTY]])
    after = np.array([[EMPTY] * 3, [0, 2, 1], [3, 0, EMPTY]])
    assert list(transfers(0, before, after)) == [Transfer(0, 1, 0, 1), Transfer(0, 0, 1, 2)]


def test_any_change_arrives_whole_and_leaves_every_expert_reachable_on_the_way() -> None:
    rng = np.random.default_rng(5)
    for _ in range(300):
        npus, experts = int(rng.integers(1, 6)), int(rng.integers(1, 20))
        width = -(-experts // npus) + int(rng.integers(0, 3))
        before, after = (random_layer(rng, npus, width, experts) for _ in range(2))
        held = [set(row[row != EMPTY].tolist()) for row in before]
        for move in transfers(0, before, after):
            assert move.expert in set(before[move.source].tolist())
            assert move.expert not in held[move.target]
            held[move.target].add(move.expert)
        assert all(set(row[row != EMPTY].tolist()) <= held[npu] for npu, row in enumerate(after))
        off = switched_off(before, after, experts)
        assert ReplicaMap.of(before, experts, off).copies.all()
        staying = {
            npu * width + slot for npu, row in enumerate(before) for slot, e in enumerate(row) if e in after[npu]
        }
        assert not off & staying
