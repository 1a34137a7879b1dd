"""Gangs: which instances are placed together, and who goes first.

As long as nothing of a gang has a place, its unit is all replicas of all its TaskExecutors, once as many of them
exist as it says; it fits whole or holds no dies. Afterwards every instance with a missing DP group is a unit by
itself. Units are considered one after another: the higher priority first, then those of gangs that have begun (to
finish what a crash cut short, and to bring back a replica that a rollout took down), then the older gang, then by
name. A unit that will fit as soon as instances that leave are gone keeps that room for itself; if that is not enough,
as few warm engines as make room give way to it. One that will not fit even so leaves its room to the next. Since nobody
holds a part while waiting for the rest, no two gangs can block each other.

A gang whose pods did not all reach their servers in time gives everything back, and is not considered for as long
again: others get their turn.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from xdeepserve_operator.planner.placement import Placement, Request, Shortfall, holding, place, take
from xdeepserve_operator.planner.room import without
from xdeepserve_operator.planner.servers import Server
from xdeepserve_operator.planner.warm import EngineKey, Idle, give_way

WaitReason = Literal["InsufficientDies", "Placing", "GaveBack"]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why an instance has no place yet.

    InsufficientDies: for lack of dies. Placing: its gang is still being made. GaveBack: its gang had its time.
    """

    message: str
    reason: WaitReason = "InsufficientDies"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A TaskExecutor as admission sees it.

    ``gang`` and ``key`` carry the namespace; ``missing`` holds a request for every wanted replica with DP groups that
    have no place; ``begun`` says whether any of its groups has one to stay; ``ending`` whether wanted replicas wait for
    the end of their last life; ``resting`` says why it is not to be considered. ``engines`` names the warm engines that
    stand for DP groups left out of ``missing``, by replica.
    """

    key: str
    created: str
    gang: str
    members: int
    begun: bool
    missing: Mapping[int, Request]
    priority: int = 0
    ending: bool = False
    resting: Waiting | None = None
    engines: Mapping[int, frozenset[EngineKey]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unit:
    """What is admitted whole or not at all: requests by (TaskExecutor, replica), and warm engines promised to it."""

    gang: str
    priority: int
    requests: Mapping[tuple[str, int], Request]
    engines: frozenset[EngineKey] = frozenset()


@dataclass(frozen=True, slots=True)
class Admission:
    """What becomes of one gang.

    ``admitted``: units to create now. ``waiting``: why instances (TaskExecutor, replica) wait. ``short``: units that
    do not even fit once everything that leaves is gone, with the servers as they are left for them. ``going``: warm
    engines that give way to it.
    """

    admitted: tuple[Placement, ...]
    waiting: Mapping[tuple[str, int], Waiting]
    short: tuple[tuple[Unit, tuple[Server, ...]], ...] = ()
    going: tuple[Idle, ...] = ()


def units(candidates: Iterable[Candidate]) -> tuple[list[Unit], dict[str, Waiting]]:
    """Units in order of consideration, and why the other gangs are not considered."""
    gangs: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in sorted(candidates, key=lambda one: (one.created, one.key)):
        gangs[candidate.gang].append(candidate)
    begun: list[Unit] = []
    fresh: list[Unit] = []
    aside: dict[str, Waiting] = {}
    for gang, members in gangs.items():
        requests = {(one.key, replica): ask for one in members for replica, ask in sorted(one.missing.items())}
        engines = {
            (one.key, replica): one.engines.get(replica, frozenset()) for one in members for replica in one.missing
        }
        wanted = max(one.members for one in members)
        priority = max(one.priority for one in members)
        resting = next((one.resting for one in members if one.resting is not None), None)
        if resting is not None:
            aside[gang] = resting
        elif any(one.begun for one in members):
            begun += [Unit(gang, priority, {key: request}, engines[key]) for key, request in requests.items()]
        elif len(members) < wanted:
            aside[gang] = Waiting(f"gang has {len(members)} of {wanted} TaskExecutors", "Placing")
        elif any(one.ending for one in members):
            aside[gang] = Waiting("old instances of the gang are ending", "Placing")
        elif requests:
            fresh.append(Unit(gang, priority, requests, frozenset[EngineKey]().union(*engines.values())))
    return sorted(begun + fresh, key=lambda unit: -unit.priority), aside


def admit(
    servers: Sequence[Server],
    candidates: Sequence[Candidate],
    gang: str,
    freeing: Mapping[str, int] | None = None,
    idle: Sequence[Idle] = (),
) -> Admission:
    """Plans every unit that comes before or belongs to ``gang``, and returns that gang's share.

    ``freeing``: dies by server that instances which leave still hold; ``idle``: warm engines without a DP group.
    """
    ordered, aside = units(candidates)
    promised = frozenset[EngineKey]().union(*(unit.engines for unit in ordered))
    free = [one for one in idle if one.key not in promised]
    soon = holding(servers, {node: -dies for node, dies in (freeing or {}).items()})
    admitted: list[Placement] = []
    waiting: dict[tuple[str, int], Waiting] = {}
    short: list[tuple[Unit, tuple[Server, ...]]] = []
    leaving: list[Idle] = []
    for unit in ordered:
        requests = list(unit.requests.values())
        plan = later = place(servers, requests)
        going = give_way(soon, requests, free) if isinstance(plan, Shortfall) and (freeing or free) else None
        if going is not None:
            soon, free = without(soon, going), [one for one in free if one not in going]
            later = place(soon, requests)
        mine = unit.gang == gang
        if isinstance(later, Shortfall):
            if mine:
                waiting |= dict.fromkeys(unit.requests, Waiting(later.message))
                short.append((unit, without(soon, free)))
            free += [one for one in idle if one.key in unit.engines]  # others may have them from now on
            continue
        servers, soon = take(servers, later, requests), take(soon, later, requests)
        if not mine:
            continue
        if isinstance(plan, Placement):
            admitted.append(plan)
        else:
            who = "engines that wait give way" if going else "instances that leave make room"
            waiting |= dict.fromkeys(unit.requests, Waiting(f"{plan.message}; {who}"))
            leaving += going or ()
    if gang in aside:
        members = [candidate for candidate in candidates if candidate.gang == gang]
        waiting = {(one.key, replica): aside[gang] for one in members for replica in one.missing}
    return Admission(tuple(admitted), waiting, tuple(short), tuple(leaving))
