"""Which replicas of a TaskExecutor leave, and when one that leaves is gone.

Three ways out. Scaled down: beyond the wanted number, at once, the highest first. Outdated: of a revision that is to
be replaced, the highest first; one that does not serve anyway costs nothing and leaves at once, holding nobody up; one
that serves leaves when the replicas that serve without it are at least the wanted number less ``maxUnavailable``, and
when its partners of the other roles can spare it (see pairs). Surplus: a surge replica when the others are as many as
are wanted, whatever the budget: what already runs is not given up for what still starts. Replacing is leaving: the
replica is then made anew at its new revision, on whatever dies fit.

A replica without room does not hold the others up: replacing one in place asks for no more dies than it gives back.

One that leaves is first taken from the routes; it is gone when it has no more requests and was given notice, or when it
stopped serving, or at its deadline. One that is wanted again meanwhile stays, unless it was preempted.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from xdeepserve_operator.api.v1alpha1.update import LeaveReason
from xdeepserve_operator.planner.conditions import seconds_since
from xdeepserve_operator.planner.goal import Goal
from xdeepserve_operator.planner.instance import InstanceView

NOTICE_SECONDS = 2.0  # routes are spread, and what was on its way has arrived


@dataclass(frozen=True, slots=True)
class Exit:
    """A replica that leaves from now on."""

    view: InstanceView
    reason: LeaveReason


def exits(
    views: Sequence[InstanceView], goal: Goal, objection: Callable[[Sequence[int], int], str | None]
) -> tuple[list[Exit], str]:
    """Replicas that begin to leave now, and why the next one may not yet.

    ``objection(gone, replica)`` says what the other roles have against ``replica`` leaving after ``gone``.
    """
    held = [view for view in views if view.holds_dies and view.leaving is None]
    wanted = goal.made_at(staying(views))
    serving = sum(view.ready for view in held)
    enough = goal.replicas - without_room(views, goal)
    budget = max(0, enough - goal.strategy.max_unavailable)
    leaving: list[Exit] = []
    hindrance = ""
    for view in sorted(held, key=lambda view: (view.ready, -view.replica)):
        if wanted.get(view.replica) == view.revision:
            continue
        extra, surge = view.replica >= goal.replicas, goal.is_surge(view.replica)
        if view.ready and (surge or not extra):
            why = objection([one.view.replica for one in leaving], view.replica)
            floor = enough if surge else budget
            if serving - 1 < floor:
                why = f"{serving} of {goal.replicas} instances serve, the budget says {floor} at least"
            if why is not None:
                hindrance = hindrance or why
                continue
        serving -= view.ready
        leaving.append(Exit(view, "Outdated" if not extra else "Surplus" if surge else "ScaledDown"))
    return leaving, hindrance


def without_room(views: Sequence[InstanceView], goal: Goal) -> int:
    """Wanted replicas that hold no dies, and of which nothing is left that ends; asked after placing."""
    return sum(not view.holds_dies and not view.draining for view in views if view.replica < goal.replicas)


def is_gone(view: InstanceView, drain_seconds: int, now: datetime) -> bool:
    """Whether a replica that leaves has nothing left to finish, or no more time."""
    if view.leaving is None:
        return False
    waited = seconds_since(view.leaving.since, now)
    return not view.ready or waited >= drain_seconds or (waited >= NOTICE_SECONDS and view.idle)


def may_stay(view: InstanceView, goal: Goal, others: Mapping[int, str]) -> bool:
    """Whether a replica that leaves is wanted again as it is; ``others`` are those that stay."""
    if view.leaving is None or view.leaving.reason == "Preempted":
        return False
    return goal.made_at({**others, view.replica: view.revision}).get(view.replica) == view.revision


def staying(views: Sequence[InstanceView]) -> dict[int, str]:
    """Revision of every replica that holds dies and does not leave."""
    return {view.replica: view.revision for view in views if view.holds_dies and view.leaving is None}


def half_placed(views: Sequence[InstanceView]) -> tuple[InstanceView, ...]:
    """Replicas that hold some of their dies and never ran: what a crash in the middle of admission can leave."""
    return tuple(view for view in views if view.holds_dies and not view.placed and view.epoch == 0)
