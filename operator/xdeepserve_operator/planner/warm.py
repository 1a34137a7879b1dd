"""Warm engines: which of them become which DP groups.

A TaskExecutor may keep engines that run and wait, each with the dies of a DP group, to be assigned when an instance is
made, scaled up or mended. A DP group that is to be placed goes where a waiting engine is that fits: of its revision,
with its number of dies, on an allowed chip. What a waiting engine holds is nobody else's until somebody lacks dies:
then as few of them go as make room, those of the lowest priority first, whoever lacks them, for what waits serves
nobody. Of equals, those go that are on servers where the placement wants to be, and that have not started yet.

``engaged`` matches groups that have no pod yet with waiting engines on their server, by name on both sides, so that
whoever asks comes to the same answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.base import Chip
from xdeepserve_operator.planner.groups import GroupView
from xdeepserve_operator.planner.packing import Block
from xdeepserve_operator.planner.placement import Placement, Request, place
from xdeepserve_operator.planner.pods import PodView
from xdeepserve_operator.planner.room import leavers, without
from xdeepserve_operator.planner.servers import Server

EngineKey = tuple[str, str]  # namespace and name


@dataclass(frozen=True, slots=True)
class Idle:
    """A warm engine, listening or not yet, that no DP group is to have; of its TaskExecutor's ``priority``."""

    namespace: str
    name: str
    priority: int
    started: bool
    dies: Mapping[str, int]

    @property
    def key(self) -> EngineKey:
        """Names it in the cluster."""
        return self.namespace, self.name


def waiting(pods: Iterable[PodView]) -> list[PodView]:
    """Engines that listen and can be assigned, by name."""
    usable = (pod for pod in pods if pod.component == names.COMPONENT_WARM and pod.alive and pod.ip and pod.started)
    return sorted(usable, key=lambda pod: pod.name)


def engaged(groups: Iterable[GroupView], pods: Sequence[PodView]) -> dict[str, PodView]:
    """The waiting engine that each DP group without a pod is to have, by the group's name."""
    present = {(pod.group, pod.attempt) for pod in pods}
    free, found = waiting(pods), dict[str, PodView]()
    for group in sorted(groups, key=lambda one: one.name):
        if group.deleted or group.leaving is not None or (group.name, group.attempt) in present:
            continue
        match = next((pod for pod in free if pod.node == group.node and _fits(pod, group.dies, group.revision)), None)
        if match is not None:
            found[group.name] = match
            free.remove(match)
    return found


def spare(groups: Iterable[GroupView], pods: Sequence[PodView]) -> list[PodView]:
    """Waiting engines that no DP group is to have."""
    taken = {pod.name for pod in engaged(groups, pods).values()}
    return [pod for pod in waiting(pods) if pod.name not in taken]


def idle(groups: Iterable[GroupView], pods: Sequence[PodView], priority: int) -> list[Idle]:
    """All of a TaskExecutor that could give way."""
    taken = {pod.name for pod in engaged(groups, pods).values()}
    free = (pod for pod in pods if pod.component == names.COMPONENT_WARM and pod.alive and pod.name not in taken)
    return [Idle(pod.namespace, pod.name, priority, pod.started, {pod.server: pod.dies_requested}) for pod in free]


def give_way(
    servers: Sequence[Server], requests: Sequence[Request], engines: Sequence[Idle]
) -> tuple[Idle, ...] | None:
    """Those that must go for ``requests`` to fit on ``servers``; None when they do not even fit once all are gone."""
    if isinstance(place(servers, requests), Placement):
        return ()
    plan = place(without(servers, engines), requests) if engines else None
    if not isinstance(plan, Placement):
        return None
    wanted = {spot.node for spot in plan.spots.values()}
    order = sorted(engines, key=lambda one: (one.priority, wanted.isdisjoint(one.dies), one.started, one.key))
    return leavers(servers, requests, order)


def fill(
    blocks: Sequence[Block],
    revision: str,
    chips: Sequence[Chip],
    spares: Sequence[PodView],
    chip_of: Mapping[str, Chip],
) -> dict[str, PodView]:
    """Fitting spares for as many blocks of an instance as there are; all on one chip, the first that has any.

    ``chip_of``: the chip of servers that can be used.
    """
    for chip in chips:
        free = [pod for pod in spares if chip_of.get(pod.node) == chip]
        found: dict[str, PodView] = {}
        for block in blocks:
            fitting = [pod for pod in free if _fits(pod, block.dies, revision)]
            match = min(fitting, key=lambda pod: (pod.node in block.avoid, pod.name), default=None)
            if match is not None:
                found[block.key] = match
                free.remove(match)
        if found:
            return found
    return {}


def donor(group: GroupView, pods: Iterable[PodView]) -> str:
    """Address of the engine whose weights a DP group starts with; empty when none of its revision serves.

    Groups of different numbers take different ones.
    """
    serving = sorted(
        (pod.name, pod.ip)
        for pod in pods
        if pod.component == names.COMPONENT_ENGINE and pod.alive and pod.ready and pod.revision == group.revision
    )
    return serving[group.index % len(serving)][1] if serving else ""


def superfluous(pods: Iterable[PodView], revision: str, wanted: int) -> list[PodView]:
    """Warm engines, ready or not, that are to go: of another revision, at their end, or more than ``wanted``."""
    mine = [pod for pod in pods if pod.component == names.COMPONENT_WARM and not pod.terminating]
    useless = [pod for pod in mine if pod.terminal or pod.error is not None or pod.revision != revision]
    kept = sorted((pod for pod in mine if pod not in useless), key=lambda pod: (not pod.started, pod.name))
    return [*useless, *kept[wanted:]]


def next_number(pods: Iterable[PodView]) -> int:
    """A number that no warm engine of the executor has, not even one that became a DP group."""
    tails = (pod.name.rpartition("-warm-")[2] for pod in pods if "-warm-" in pod.name)
    return max((int(tail) for tail in tails if tail.isdecimal()), default=-1) + 1


def _fits(pod: PodView, dies: int, revision: str) -> bool:
    return pod.dies_requested == dies and pod.revision == revision
