"""Requests go where there is least to do, even when they come faster than heartbeats."""

from __future__ import annotations

from collections import Counter

from flowserve.shell.heartbeats import Serving
from flowserve.shell.picker import Picker
from flowserve.wire import EngineStatus, Member


class Clock:
    now = 10.0

    def __call__(self) -> float:
        return self.now


def serving(rank: int, running: int = 0, waiting: int = 0, kv: float = 0.0, heard: float = 10.0) -> Serving:
    status = EngineStatus(
        name="e",
        incarnation=f"m{rank}",
        fabric_uri="u",
        state="Serving",
        epoch=1,
        running=running,
        waiting=waiting,
        kv_usage=kv,
    )
    return Serving(Member(rank=rank, host="h", incarnation=f"m{rank}", fabric_uri="u"), status, heard)


def picked(picker: Picker, *candidates: Serving) -> int:
    member = picker.pick(candidates)
    assert member is not None
    return member.rank


def test_the_fewest_sequences_then_the_most_free_kv() -> None:
    assert picked(Picker(Clock()), serving(0, running=2), serving(1, running=1, waiting=2), serving(2, running=1)) == 2
    assert picked(Picker(Clock()), serving(0, kv=0.5), serving(1, kv=0.2)) == 1


def test_nobody_is_picked_if_nobody_serves() -> None:
    assert Picker(Clock()).pick([]) is None


def test_a_burst_between_two_heartbeats_is_spread() -> None:
    picker = Picker(Clock())
    counts = Counter(picked(picker, serving(0), serving(1), serving(2, running=2)) for _ in range(10))
    assert counts == {0: 4, 1: 4, 2: 2}


def test_what_a_rank_reports_is_not_counted_again() -> None:
    clock = Clock()
    picker = Picker(clock)
    for _ in range(4):
        picked(picker, serving(0))
    clock.now = 10.5
    assert picked(picker, serving(0, running=4, heard=10.4), serving(1, running=5, heard=10.4)) == 0
    assert picked(picker, serving(0, running=4, heard=10.4), serving(1, running=4, heard=10.4)) == 1
