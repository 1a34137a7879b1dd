"""Silence is measured from the last answer, and decides who is counted on."""

from __future__ import annotations

from typing import Any

import pytest

from flowserve.shell.heartbeats import Heartbeats, behind
from flowserve.wire import EngineStatus, Member, Membership, RosterEntry


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def heartbeats(clock: Clock) -> Heartbeats:
    heartbeats = Heartbeats(clock, patience=1.5)
    heartbeats.follow((entry(1), entry(0)))
    return heartbeats


def entry(rank: int, host: str = "127.0.0.1") -> RosterEntry:
    return RosterEntry(rank=rank, host=host)


def status(rank: int, **changes: Any) -> EngineStatus:
    known = {"name": "e", "incarnation": f"m{rank}", "fabric_uri": "u", "state": "Serving", "epoch": 2}
    return EngineStatus(**{**known, **changes})


MEMBERSHIP = Membership(
    instance="i",
    epoch=2,
    members=tuple(Member(rank=rank, host="127.0.0.1", incarnation=f"m{rank}", fabric_uri="u") for rank in (0, 1)),
)


def test_silence_counts_from_the_roster_until_the_first_answer(heartbeats: Heartbeats, clock: Clock) -> None:
    clock.now += 4
    heartbeats.heard(entry(1), status(1))
    clock.now += 2
    reports = heartbeats.reports()
    assert [(each.rank, each.silent_seconds, each.ever_heard) for each in reports] == [(0, 6, False), (1, 2, True)]


def test_a_new_roster_keeps_what_is_known_of_those_that_stay(heartbeats: Heartbeats, clock: Clock) -> None:
    heartbeats.heard(entry(0), status(0))
    heartbeats.heard(entry(1), status(1))
    clock.now += 1
    heartbeats.follow((entry(0), entry(1, host="127.0.0.9")))
    assert [(each.silent_seconds, each.ever_heard) for each in heartbeats.reports()] == [(1, True), (0, False)]
    heartbeats.heard(entry(1), status(1))  # a late answer of one that was replaced
    assert not heartbeats.reports()[1].ever_heard


def test_only_members_that_serve_in_the_epoch_and_are_heard_are_counted_on(
    heartbeats: Heartbeats, clock: Clock
) -> None:
    def serving() -> list[int]:
        return sorted(each.member.rank for each in heartbeats.serving(MEMBERSHIP))

    heartbeats.heard(entry(0), status(0))
    heartbeats.heard(entry(1), status(1))
    assert serving() == [0, 1]
    for wrong in ({"state": "Broken"}, {"epoch": 1}, {"incarnation": "restarted"}):
        heartbeats.heard(entry(1), status(1, **wrong))
        assert serving() == [0]
    clock.now += 1.5
    assert serving() == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"epoch": 1}, True),
        ({"epoch": 0, "state": "Waiting"}, True),
        ({"epoch": 2}, False),
        ({"epoch": 3}, False),
        ({"epoch": 0, "state": "Loading"}, False),
        ({"epoch": 0, "incarnation": "stranger"}, False),
    ],
)
def test_a_membership_is_sent_to_members_that_have_not_heard_of_it(changes: dict[str, Any], expected: bool) -> None:
    assert behind(status(0, **changes), MEMBERSHIP) is expected
