"""Epochs: when a new one begins, and when the old one stands."""

from dataclasses import replace

import pytest

from flowserve.wire import Membership
from xdeepserve_operator.planner.instance import InstanceView
from xdeepserve_operator.planner.membership import InForce, Wait, membership_for, roster_for
from xdeepserve_operator.planner.recovery import Fault

from .builders import instance, status


def new(view: InstanceView, last: Membership | None = None, refused: int = 0) -> Membership:
    step = membership_for(view, last, refused)
    assert isinstance(step, Membership), step
    return step


def joined(epoch: int, *lives: int, ready: bool = True) -> InstanceView:
    """An instance that serves in ``epoch``."""
    statuses = [status(rank, epoch=epoch, state="Serving", life=life) for rank, life in enumerate(lives)]
    return instance(*statuses, epoch=epoch, ready=ready)


def sent(epoch: int, *lives: int) -> Membership:
    """What was sent for ``joined``."""
    waiting = instance(*(status(rank, life=life) for rank, life in enumerate(lives)), known=epoch - 1)
    return new(waiting)


def test_the_first_membership_has_every_rank_with_its_incarnation() -> None:
    first = new(instance(status(0), status(1)))
    assert (first.instance, first.epoch) == ("te-0", 1)
    assert [(one.rank, one.host, one.incarnation) for one in first.members] == [
        (0, "127.1.0.1", "e0.0"),
        (1, "127.1.0.2", "e1.0"),
    ]


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        (replace(instance(status(0)), report=None), "TE-shell of te-0 does not answer"),
        (instance(status(0), placed=False), "rank 0 has no place"),
        (instance(status(0), None), "rank 1: not heard yet"),
        (instance(status(0), silent=4.0), "rank 0: silent"),
        (instance(status(0), status(1, state="Loading")), "rank 1: loading the checkpoint"),
        (instance(status(0), fault=Fault("DieUnhealthy", "die 3 is unhealthy")), "die 3 is unhealthy"),
    ],
)
def test_it_needs_every_rank(view: InstanceView, reason: str) -> None:
    assert membership_for(view, None) == Wait(reason)


def test_what_is_in_force_is_not_sent_again() -> None:
    assert membership_for(joined(3, 0, 0), sent(3, 0, 0)) == InForce()


def test_a_new_operator_reads_the_membership_back() -> None:
    assert membership_for(joined(3, 0, 0), None) == InForce()


def test_a_new_operator_that_cannot_read_it_back_begins_an_epoch() -> None:
    half = instance(status(0, epoch=3, state="Serving"), status(1), epoch=3)
    assert new(half).epoch == 4


def test_members_that_still_join_are_waited_for() -> None:
    half = instance(status(0, epoch=3, state="Serving"), status(1), epoch=3)
    assert membership_for(half, sent(3, 0, 0)) == InForce()


def test_another_incarnation_is_another_epoch() -> None:
    restarted = instance(status(0, epoch=3, state="Broken"), status(1, life=1), epoch=3)
    following = new(restarted, sent(3, 0, 0))
    assert following.epoch == 4
    assert following.members[1].incarnation == "e1.1"


def test_a_broken_rank_among_the_living_begins_an_epoch_once() -> None:
    broken = instance(status(0, epoch=3, state="Broken"), status(1, epoch=3, state="Serving"), epoch=3)
    following = new(broken, sent(3, 0, 0))
    assert following.epoch == 4
    assert new(broken).epoch == 4, "also when nothing is remembered"
    spreading = replace(broken, report=broken.report and broken.report.model_copy(update={"epoch": 4}))
    assert membership_for(spreading, following) == InForce(), "it is on its way"


def test_a_shell_that_restarted_gets_the_same_membership_again() -> None:
    forgetful = replace(joined(3, 0, 0), report=joined(3, 0, 0).report.model_copy(update={"epoch": 0, "ready": False}))  # type: ignore[union-attr]
    assert new(forgetful, sent(3, 0, 0)) == sent(3, 0, 0)
    assert new(forgetful) == sent(3, 0, 0), "also when it must be read back"


@pytest.mark.parametrize(("status_epoch", "shell_epoch", "engine_epoch"), [(7, 0, 0), (0, 7, 0), (0, 0, 7)])
def test_epochs_only_grow_whoever_saw_the_last(status_epoch: int, shell_epoch: int, engine_epoch: int) -> None:
    one = status(0, epoch=engine_epoch, state="Broken" if engine_epoch else "Waiting")
    assert new(instance(one, status(1), epoch=shell_epoch, known=status_epoch)).epoch == 8


def test_a_refused_epoch_is_not_offered_again() -> None:
    lost = replace(joined(3, 0), report=joined(3, 0).report.model_copy(update={"epoch": 0}))  # type: ignore[union-attr]
    assert new(lost, None, refused=3).epoch == 4


def test_the_roster_lists_whoever_has_an_address() -> None:
    view = instance(status(0), status(1))
    assert roster_for(view) is None, "the shell hears exactly these"
    deaf = replace(view, report=view.report and view.report.model_copy(update={"ranks": ()}))
    roster = roster_for(deaf)
    assert roster is not None
    assert [(entry.rank, entry.host) for entry in roster.entries] == [(0, "127.1.0.1"), (1, "127.1.0.2")]
    moved = replace(view, ranks=(view.ranks[0], replace(view.ranks[1], pod=None)))
    shorter = roster_for(moved)
    assert shorter is not None
    assert len(shorter.entries) == 1
