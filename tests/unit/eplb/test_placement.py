"""Placements and clusters: what is refused and where, and what counts as a move."""

import numpy as np
import pytest

from eplb import EMPTY, Cluster, Placement, Unplannable


def test_plain_spreads_experts_in_order_over_open_slots() -> None:
    cluster = Cluster(3, [2, 1, 2], excluded=frozenset({2}))
    assert Placement.plain(1, 3, cluster).slots[0].tolist() == [[0, 1], [2, EMPTY], [EMPTY, EMPTY]]
    with pytest.raises(Unplannable, match="4 experts do not fit into 3 open slots"):
        Placement.plain(1, 4, cluster)


@pytest.mark.parametrize(
    ("slots", "reason"),
    [
        ([[[0, 1], [EMPTY, EMPTY]]], "expert 2 has no copy"),
        ([[[0, 0], [1, 2]]], "more than once"),
        ([[[0, 1], [2, 0]]], "slot 1 of NPU 1 is filled, but not open"),
        ([[[0, 1, 2]]], "on 2 NPUs"),
    ],
)
def test_a_broken_invariant_is_named(slots: list[list[list[int]]], reason: str) -> None:
    with pytest.raises(Unplannable, match=reason):
        Placement.of(slots, 3).check(Cluster(2, [2, 1]) if reason.startswith("slot") else Cluster(2, 2))


@pytest.mark.parametrize("slots", [[[0]], [[[3]]], [[[-2]]], [[[0.5]]], np.zeros((1, 0, 2), int)])
def test_what_is_no_placement_is_refused(slots: object) -> None:
    with pytest.raises(Unplannable):
        Placement.of(slots, 3)  # type: ignore[arg-type]


def test_only_a_copy_that_an_npu_did_not_hold_is_a_move() -> None:
    before = Placement.of([[[0, 1], [2, EMPTY]], [[0, 1], [2, EMPTY]]], 3)
    after = Placement.of([[[1, 0], [2, 0]], [[2, EMPTY], [0, 1]]], 3)
    assert after.moves_from(before).tolist() == [1, 3]


def test_an_expert_twice_on_an_npu_is_one_duplicate_however_often() -> None:
    assert Placement.of([[[0, 0, 0, 1], [1, 2, 1, 2]]], 3).duplicates() == 3


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"npus": 0, "slots": 1}, "at least one NPU"),
        ({"npus": 2, "slots": [1]}, "names 1 NPUs of 2"),
        ({"npus": 2, "slots": [0, 0]}, "1 or more on some"),
        ({"npus": 2**20, "slots": 2**20}, "too many"),
        ({"npus": 2, "slots": 1, "excluded": frozenset({2})}, "excluded names NPU 2"),
        ({"npus": 2, "slots": 1, "shared_on": [-1]}, "shared_on names NPU -1"),
        ({"npus": 2, "slots": 1, "speeds": [1, 0]}, "positive"),
        ({"npus": 2, "slots": 1, "speeds": [1]}, "names 1 NPUs"),
        ({"npus": 3, "slots": 1, "servers": 2}, "evenly to 2 servers"),
        ({"npus": 4, "slots": 1, "servers": 2, "expert_groups": 3}, "3 expert groups"),
    ],
)
def test_an_impossible_cluster_is_refused(arguments: dict[str, object], reason: str) -> None:
    with pytest.raises(Unplannable, match=reason):
        Cluster(**arguments)  # type: ignore[arg-type]
