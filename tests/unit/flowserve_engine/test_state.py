"""Which memberships an engine follows, and the states it goes through."""

from __future__ import annotations

from typing import Any

import pytest

from flowserve.engine.state import Lifecycle
from flowserve.epoch import Refused
from flowserve.wire import Member, Membership

ME = "incarnation-me"


def member(rank: int, incarnation: str) -> Member:
    return Member(rank=rank, host="127.0.0.1", incarnation=incarnation, fabric_uri=f"shm:///x/{incarnation}")


def membership(epoch: int = 1, **changes: Any) -> Membership:
    members = (member(0, ME), member(1, "other"))
    return Membership(**{"instance": "i", "epoch": epoch, "members": members, **changes})


@pytest.fixture
def life() -> Lifecycle:
    life = Lifecycle("i", ME, max_ranks=2)
    life.loaded()
    return life


def test_states_on_the_way_to_service_and_back(life: Lifecycle) -> None:
    assert (life.state, life.epoch) == ("Waiting", 0)
    assert life.offer(membership(3))
    assert (life.state, life.epoch, life.member.rank) == ("Joining", 3, 0)
    life.joined()
    assert life.state == "Serving"
    life.broke("rank 1 is gone")
    assert (life.state, life.error) == ("Broken", "rank 1 is gone")
    assert life.offer(membership(4, members=(member(0, "new"), member(1, ME))))
    assert (life.state, life.error, life.epoch, life.member.rank) == ("Joining", "", 4, 1)


def test_a_repeated_membership_changes_nothing(life: Lifecycle) -> None:
    life.offer(membership(1))
    life.joined()
    assert not life.offer(membership(1))
    assert life.state == "Serving"


@pytest.mark.parametrize(
    ("offered", "problem"),
    [
        (membership(4), "older"),
        (membership(5, members=(member(0, ME),)), "other content"),
        (membership(6, instance="another"), "instance"),
        (membership(6, members=(member(0, "stranger"),)), "not in the membership"),
        (membership(6, members=(member(0, ME), member(2, "other"))), "ranks"),
        (membership(6, members=(member(0, ME), member(0, "other"))), "ranks"),
        (membership(6, members=(member(0, ME), member(1, ME))), "same incarnation"),
        (membership(6, members=tuple(member(rank, ME if rank == 0 else f"m{rank}") for rank in range(3))), "max_ranks"),
    ],
)
def test_a_membership_that_breaks_a_rule_is_refused_and_changes_nothing(
    life: Lifecycle, offered: Membership, problem: str
) -> None:
    life.offer(membership(5))
    life.joined()
    with pytest.raises(Refused, match=problem):
        life.offer(offered)
    assert (life.state, life.membership) == ("Serving", membership(5))


def test_nothing_is_followed_while_the_model_is_loaded() -> None:
    with pytest.raises(Refused, match="loading"):
        Lifecycle("i", ME, max_ranks=2).offer(membership())
