"""Preemption: whose instances give their dies to a unit of higher priority.

Only instances of a strictly lower priority are asked, and only if the unit then fits; the lowest priority first, the
youngest first, and no more than needed (see room). A gang that would lose its last prefill or its last decode instance
could not serve any more, so it gives up everything; the rest of it comes first, for as long as the chosen ones stand,
the same answer is given again.
Nothing is ended here: the chosen ones leave as in a rollout, and finish their requests.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdeepserve_operator.api.v1alpha1.base import RoleType
from xdeepserve_operator.planner.placement import Request
from xdeepserve_operator.planner.room import leavers
from xdeepserve_operator.planner.servers import Server


@dataclass(frozen=True, slots=True)
class Holder:
    """An instance that holds ``dies`` by server, and does not leave; ``since`` sorts by age."""

    executor: str
    replica: int
    role: RoleType
    gang: str
    priority: int
    since: str
    dies: Mapping[str, int]


def victims(
    servers: Sequence[Server], requests: Sequence[Request], priority: int, holders: Sequence[Holder]
) -> tuple[Holder, ...]:
    """Instances to take down so that ``requests`` fit on ``servers``; none when that cannot be."""
    lower = sorted(
        (one for one in holders if one.priority < priority),
        key=lambda one: (-one.priority, one.since, one.executor, one.replica),
        reverse=True,
    )
    chosen = leavers(servers, requests, lower) if lower else None
    return () if chosen is None else _whole_gangs(chosen, holders)


def _whole_gangs(chosen: Sequence[Holder], holders: Sequence[Holder]) -> tuple[Holder, ...]:
    left: dict[str, Counter[str]] = defaultdict(Counter)
    for one in holders:
        left[one.gang][one.role] += 1
    for one in chosen:
        left[one.gang][one.role] -= 1
    broken = {gang for gang, roles in left.items() if 0 in roles.values()}
    return (*(one for one in holders if one.gang in broken and one not in chosen), *chosen)
