"""What an instance did in an interval, made of what its ranks have counted since they started."""

from __future__ import annotations

from typing import Any

import pytest

from flowserve.shell.expert_window import ExpertWindow
from flowserve.wire_experts import ExpertLoad


def load(*counts: int, served: int = 0, **more: Any) -> ExpertLoad:
    fields: dict[str, Any] = {"incarnation": "a", "epoch": 1, "version": 0, "layers": (3,), **more}
    return ExpertLoad(chosen=(counts,), served=(served,), **fields)


def test_a_slice_is_the_difference_of_two_rounds_over_all_ranks() -> None:
    window = ExpertWindow(4)
    window.take({0: load(5, 1, served=9), 1: load(0, 2, served=1, incarnation="b")}, 10.0)
    assert not window.slices
    window.take({0: load(6, 4, served=12), 1: load(7, 2, served=8, incarnation="b")}, 12.5)
    (slice_,) = window.slices
    assert (slice_.sequence, slice_.seconds, slice_.epoch, slice_.version) == (1, 2.5, 1, 0)
    assert slice_.chosen == ((8, 3),)
    assert slice_.served == ((3,), (7,))
    assert window.layers == (3,)


@pytest.mark.parametrize(
    "second",
    [
        {0: load(9, 9, incarnation="another")},
        {0: load(9, 9), 1: load(9, 9, incarnation="b")},
        {0: load(9, 9, epoch=2)},
    ],
    ids=["restarted", "joined", "new epoch"],
)
def test_an_interval_in_which_ranks_changed_tells_nothing(second: dict[int, ExpertLoad]) -> None:
    window = ExpertWindow(4)
    window.take({0: load(1, 1)}, 1.0)
    window.take(second, 2.0)
    assert not window.slices
    window.take({rank: each.model_copy(update={"chosen": ((11, 10),)}) for rank, each in second.items()}, 3.0)
    assert window.slices[0].chosen == ((2 * len(second), len(second)),)


def test_a_slice_in_which_the_placement_changed_has_no_version() -> None:
    window = ExpertWindow(4)
    for at, version in enumerate([0, 1, 1]):
        window.take({0: load(at, at, version=version)}, float(at))
    assert [each.version for each in window.slices] == [None, 1]


def test_the_oldest_slices_leave_and_sequences_go_on() -> None:
    window = ExpertWindow(4)
    for at in range(8):
        window.take({0: load(at, at)}, float(at))
    assert [each.sequence for each in window.slices] == [4, 5, 6, 7]
    window.resize(2)
    assert [each.sequence for each in window.slices] == [6, 7]
