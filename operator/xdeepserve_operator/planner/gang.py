"""Gangs: which instances are placed together, and who goes first.

As long as nothing of a gang has a place, its unit is all replicas of all its TaskExecutors, once as many of them
exist as it says; it fits whole or holds no dies. Afterwards every instance with a missing DP group is a unit by
itself. Units are considered one after another: those of gangs that have begun (to finish what a crash cut short, and
to bring back a replica that a rollout took down), then waiting gangs, the older first, then by name. A unit that does
not fit leaves its room to the next. Since nobody holds a part while waiting for the rest, no two gangs can block each
other.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from xdeepserve_operator.planner.placement import Placement, Request, place, take
from xdeepserve_operator.planner.servers import Server


@dataclass(frozen=True, slots=True)
class Candidate:
    """A TaskExecutor as admission sees it.

    ``gang`` and ``key`` carry the namespace; ``missing`` holds a request for every wanted replica with DP groups that
    have no place; ``begun`` says whether any of its groups has one.
    """

    key: str
    created: str
    gang: str
    members: int
    begun: bool
    missing: Mapping[int, Request]


@dataclass(frozen=True, slots=True)
class Unit:
    """What is admitted whole or not at all: requests by (TaskExecutor, replica)."""

    gang: str
    requests: Mapping[tuple[str, int], Request]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why an instance has no place yet; ``short``: for lack of dies, not just because its gang is still being made."""

    message: str
    short: bool = True


@dataclass(frozen=True, slots=True)
class Admission:
    """What becomes of one gang: units to create now, and why instances (TaskExecutor, replica) wait."""

    admitted: tuple[Placement, ...]
    waiting: Mapping[tuple[str, int], Waiting]


def units(candidates: Iterable[Candidate]) -> tuple[list[Unit], dict[str, Waiting]]:
    """Units in order of consideration, and the gangs that still wait for members."""
    gangs: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in sorted(candidates, key=lambda one: (one.created, one.key)):
        gangs[candidate.gang].append(candidate)
    begun: list[Unit] = []
    fresh: list[Unit] = []
    incomplete: dict[str, Waiting] = {}
    for gang, members in gangs.items():
        requests = {(one.key, replica): ask for one in members for replica, ask in sorted(one.missing.items())}
        wanted = max(one.members for one in members)
        if any(one.begun for one in members):
            begun += [Unit(gang, {key: request}) for key, request in requests.items()]
        elif len(members) < wanted:
            incomplete[gang] = Waiting(f"gang has {len(members)} of {wanted} TaskExecutors", short=False)
        elif requests:
            fresh.append(Unit(gang, requests))
    return begun + fresh, incomplete


def admit(servers: Sequence[Server], candidates: Sequence[Candidate], gang: str) -> Admission:
    """Plans every unit that comes before or belongs to ``gang``, and returns that gang's share."""
    ordered, incomplete = units(candidates)
    admitted: list[Placement] = []
    waiting: dict[tuple[str, int], Waiting] = {}
    for unit in ordered:
        requests = list(unit.requests.values())
        plan = place(servers, requests)
        if isinstance(plan, Placement):
            servers = take(servers, plan, requests)
            if unit.gang == gang:
                admitted.append(plan)
        elif unit.gang == gang:
            waiting |= dict.fromkeys(unit.requests, Waiting(plan.message))
    if gang in incomplete:
        members = [candidate for candidate in candidates if candidate.gang == gang]
        waiting = {(one.key, replica): incomplete[gang] for one in members for replica in one.missing}
    return Admission(tuple(admitted), waiting)
