"""When a gang that holds its dies, but not all of them with a running pod, gives everything back.

A place is a plan; the scheduler may see what the plan did not: a taint, another tenant that was faster, a lack of
memory. Until its first membership an instance is on trial: if some pod of it has no server ``timeout`` seconds after
its DP groups were placed, it gives all of them back. So does the rest of its gang, unless of each type in it, prefill
and decode, some instance ran: one type alone serves nobody. Afterwards the gang rests for as long again, so that others
get their turn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from xdeepserve_operator.api.v1alpha1.base import RoleType
from xdeepserve_operator.planner.conditions import find_condition, parse_time, seconds_since
from xdeepserve_operator.planner.executorstatus import PLACED
from xdeepserve_operator.planner.gang import Waiting
from xdeepserve_operator.planner.instance import InstanceView


@dataclass(frozen=True, slots=True)
class Part:
    """The instances of one TaskExecutor."""

    role: RoleType
    views: Sequence[InstanceView]


@dataclass(frozen=True, slots=True)
class Overdue:
    """Replicas of one's own to give back, and the pod that has no server, for people."""

    views: tuple[InstanceView, ...]
    message: str


def on_trial(view: InstanceView) -> bool:
    """Whether it holds dies and never ran."""
    return view.holds_dies and view.epoch == 0


def resting(executor: Mapping[str, Any], timeout_seconds: int, now: datetime) -> Waiting | None:
    """What a TaskExecutor that gave its dies back less than ``timeout_seconds`` ago waits for."""
    placed = find_condition(executor, PLACED) or {}
    since = parse_time(placed.get("lastTransitionTime"))
    if placed.get("reason") != "GaveBack" or since is None or seconds_since(since, now) >= timeout_seconds:
        return None
    return Waiting(str(placed["message"]).partition("; ")[2], "GaveBack")


def overdue(
    mine: Part,
    mates: Sequence[Part],
    timeout_seconds: int,
    now: datetime,
    *,
    mates_rest: bool = False,
) -> Overdue | None:
    """What to give back; None while nothing is due.

    ``mates`` are the gang's other TaskExecutors, ``mates_rest`` says that some of them gave their dies back.
    """
    parts = [part for part in (mine, *mates) if part.views]
    late = [(view, pod) for part in parts for view in part.views if (pod := _late(view, timeout_seconds, now))]
    due = {view.name for view, _ in late}
    ran = {part.role for part in parts if any(view.epoch > 0 for view in part.views)}
    whole = ran < {part.role for part in parts} and bool(late or mates_rest)
    back = tuple(view for view in mine.views if view.holds_dies and (whole or view.name in due))
    if not back:
        return None
    message = f"{late[0][1]} has no server after {timeout_seconds} s" if late else "the rest of the gang gave up"
    return Overdue(back, f"{message}; every die was given back, the next try comes after as long again")


def _late(view: InstanceView, timeout_seconds: int, now: datetime) -> str:
    """A DP group or pod of an instance on trial that has no server in time; empty when there is none."""
    groups = [rank.group for rank in view.ranks if rank.group is not None]
    if not on_trial(view) or not groups:
        return ""
    if seconds_since(min(group.created for group in groups), now) < timeout_seconds:
        return ""
    for rank in view.ranks:
        if rank.group is not None and (rank.pod is None or not rank.pod.node):
            return rank.group.name if rank.pod is None else rank.pod.name
    return ""
