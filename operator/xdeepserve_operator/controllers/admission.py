"""Gives DP groups their places: new ones by gang, faulted ones again.

One lock over all placement in the process: a plan is made from what the store shows and its DPGroups are created
before the next plan is made, and the store shows them as soon as they are created. So dies are never promised twice,
and a gang's groups are created together by whichever member's reconciler comes first. A crash in between leaves a gang
that has begun: its rest goes first (see planner.gang), and a replica that cannot be completed gives its dies back.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pydantic import ValidationError

from xdeepserve_operator.api.v1alpha1.base import Chip
from xdeepserve_operator.controllers.objects import leaving, together
from xdeepserve_operator.controllers.ports import Cluster, Object, Store
from xdeepserve_operator.controllers.preemption import Preemption
from xdeepserve_operator.controllers.snapshot import Executor, freeing_of, groups_of, idle_of, pods_of, servers_of
from xdeepserve_operator.controllers.trial import Trial
from xdeepserve_operator.controllers.warm import give_way
from xdeepserve_operator.planner import warm
from xdeepserve_operator.planner.gang import Candidate, Waiting, admit
from xdeepserve_operator.planner.groups import GroupView
from xdeepserve_operator.planner.instance import InstanceView
from xdeepserve_operator.planner.packing import Block
from xdeepserve_operator.planner.placement import Request, Shortfall, Spot, holding, place
from xdeepserve_operator.planner.pods import PodView, next_attempt
from xdeepserve_operator.planner.room import without
from xdeepserve_operator.resources import children
from xdeepserve_operator.resources.group import dp_group
from xdeepserve_operator.resources.revision import Template


@dataclass(frozen=True, slots=True)
class Slot:
    """A DP group that is to be placed."""

    executor: Executor
    template: Template
    revision: str
    replica: int
    index: int

    @property
    def name(self) -> str:
        """Name of its DPGroup."""
        return children.group_name(self.executor.name, self.replica, self.index)

    @property
    def key(self) -> str:
        """Its block's key, unique in the cluster."""
        return f"{self.executor.namespace}/{self.name}"


class Admission:
    """Places groups; ``image`` is part of every revision."""

    def __init__(
        self,
        store: Store,
        cluster: Cluster,
        trial: Trial,
        preemption: Preemption,
        placing: asyncio.Lock,
        *,
        image: str,
    ) -> None:
        self._store, self._cluster, self._image = store, cluster, image
        self._trial, self._preemption = trial, preemption
        self._lock = placing

    async def place(self, executor: Executor) -> dict[int, Waiting]:
        """Places what the executor's gang is missing, if it fits; says by replica of the executor what does not."""
        missing = missing_slots(executor, groups_of(self._store, executor))
        if not missing:
            return {}
        async with self._lock:
            superpod = executor.spec.superpod_ref.name
            servers = servers_of(self._store, superpod)
            if servers is None:
                return dict.fromkeys(missing, Waiting(f"SuperPod {superpod} does not exist"))
            slots: dict[str, Slot] = {}
            rivals = self._rivals(superpod)
            chip_of = {server.name: server.chip for server in servers if server.usable}
            warmed: dict[tuple[str, int], Mapping[str, PodView]] = {}
            candidates = [self._candidate(rival, slots, chip_of, warmed) for rival in rivals]
            idle = idle_of(self._store)
            result = admit(servers, candidates, executor.gang, freeing_of(self._store, idle), idle)
            spots = {key: spot for placement in result.admitted for key, spot in placement.spots.items()}
            gang = {rival.key for rival in rivals if rival.gang == executor.gang}
            for (key, replica), found in warmed.items():
                if key in gang and (key, replica) not in result.waiting:
                    spots |= {block: Spot(pod.node, chip_of[pod.node]) for block, pod in found.items()}
            await self._create([(slots[key], spot) for key, spot in spots.items()])
            await give_way(self._store, self._cluster, result.going)
            wanted = {rival.key: rival.spec.replicas for rival in rivals}
            for unit, left in result.short:
                if all(replica < wanted[key] for key, replica in unit.requests):  # surge asks for nobody's dies
                    await self._preemption.make_room(executor, left, list(unit.requests.values()), rivals)
        return {replica: why for (key, replica), why in result.waiting.items() if key == executor.key}

    async def move(self, executor: Executor, views: Sequence[InstanceView]) -> dict[int, Waiting]:
        """Gives faulted groups a new attempt, an instance's together; says by replica what is missing for it."""
        waiting: dict[int, Waiting] = {}
        for view in views:
            template = executor.template(view.revision)
            if view.faults and template is not None:
                async with self._lock:
                    shortfall = await self._move(executor, template, view)
                if shortfall is not None:
                    waiting[view.replica] = Waiting(shortfall)
        return waiting

    async def _move(self, executor: Executor, template: Template, view: InstanceView) -> str | None:
        ranks = [(rank.group, rank.fault) for rank in view.ranks if rank.group is not None]
        hurt = [(group, fault) for group, fault in ranks if fault is not None]
        superpod = executor.spec.superpod_ref.name
        servers = servers_of(self._store, superpod, {(group.namespace, group.name) for group, _ in hurt})
        if servers is None:
            return f"SuperPod {superpod} does not exist"
        # An instance lies on one chip: what still stands decides it.
        chips = tuple(group.chip for group, fault in ranks if fault is None)[:1] or tuple(template.spec.chips)
        blocks = tuple(Block(group.name, group.dies, frozenset({group.node})) for group, _ in hurt)
        chip_of = {server.name: server.chip for server in servers if server.usable}
        spares = warm.spare(groups_of(self._store, executor), pods_of(self._store, executor))
        warmed = warm.fill(blocks, view.revision, chips, spares, chip_of)
        chips = tuple({chip_of[pod.node] for pod in warmed.values()}) or chips
        blocks = tuple(block for block in blocks if block.key not in warmed)
        request = Request(executor.spec.role, superpod, chips, blocks)
        plan = place(servers, [request])
        if isinstance(plan, Shortfall):
            taken = {pod.name for pod in warmed.values()}
            idle = idle_of(self._store)
            soon = holding(servers, {node: -dies for node, dies in freeing_of(self._store, idle).items()})
            free = [one for one in idle if one.namespace != executor.namespace or one.name not in taken]
            going = warm.give_way(soon, [request], free)
            await give_way(self._store, self._cluster, going or ())
            if going is None:
                rivals = self._rivals(superpod)
                await self._preemption.make_room(executor, without(soon, free), [request], rivals)
            return plan.message
        pods = _by_group(pods_of(self._store, executor))
        for group, fault in hurt:
            waits = warmed.get(group.name)
            spot = plan.spots[group.name] if waits is None else Spot(waits.node, chip_of[waits.node])
            attempt = next_attempt(pods[group.name], group.attempt)
            slot = Slot(executor, template, group.revision, group.replica, group.index)
            body = _body(slot, spot, attempt)
            await self._cluster.apply("DPGroup", body)
            message = f"{fault.message}; {group.name} moves to {spot.node}"
            self._cluster.event(executor.obj, fault.reason, message, warning=True)
        return None

    async def _create(self, places: Sequence[tuple[Slot, Spot]]) -> None:
        pods: dict[str, dict[str, list[PodView]]] = {}
        bodies: list[Object] = []
        for slot, spot in places:
            owner = slot.executor.key
            if owner not in pods:
                pods[owner] = _by_group(pods_of(self._store, slot.executor))
            bodies.append(_body(slot, spot, next_attempt(pods[owner][slot.name])))
        await together(partial(self._cluster.apply, "DPGroup"), bodies)

    def _candidate(
        self,
        executor: Executor,
        slots: dict[str, Slot],
        chip_of: Mapping[str, Chip],
        warmed: dict[tuple[str, int], Mapping[str, PodView]],
    ) -> Candidate:
        """The executor as the planner sees it; adds its missing groups to ``slots``.

        Groups for which an engine waits have their place: they go to ``warmed``, and the others follow to their chip.
        """
        groups = groups_of(self._store, executor)
        missing = missing_slots(executor, groups)
        slots |= {slot.key: slot for needed in missing.values() for slot in needed}
        spares = warm.spare(groups, pods_of(self._store, executor))
        requests: dict[int, Request] = {}
        engines: dict[int, frozenset[warm.EngineKey]] = {}
        for replica, needed in missing.items():
            request = _request(needed, groups)
            found = warm.fill(request.blocks, needed[0].revision, request.allowed, spares, chip_of)
            if found:
                warmed[executor.key, replica] = found
                engines[replica] = frozenset((pod.namespace, pod.name) for pod in found.values())
                spares = [pod for pod in spares if pod not in found.values()]
                blocks = tuple(block for block in request.blocks if block.key not in found)
                chip = chip_of[next(iter(found.values())).node]
                request = replace(request, chips=(chip,), blocks=blocks)
            requests[replica] = request
        gang = executor.spec.gang
        return Candidate(
            key=executor.key,
            created=executor.obj["metadata"].get("creationTimestamp", ""),
            gang=executor.gang,
            members=1 if gang is None else gang.members,
            begun=any(not group.deleted and not group.preempted for group in groups),
            missing=requests,
            priority=executor.spec.priority,
            ending=any((one.deleted or one.preempted) and one.replica < executor.spec.replicas for one in groups),
            resting=self._trial.rest(executor),
            engines=engines,
        )

    def _rivals(self, superpod: str) -> list[Executor]:
        """TaskExecutors of the SuperPod whose spec can be read."""
        found: list[Executor] = []
        for obj in self._store.list("TaskExecutor"):
            if leaving(obj) or obj["spec"].get("superPodRef", {}).get("name") != superpod:
                continue
            try:
                found.append(Executor.read(self._store, obj, self._image))
            except ValidationError:
                continue  # its own reconciler says so
        return found


def missing_slots(executor: Executor, groups: Sequence[GroupView]) -> dict[int, tuple[Slot, ...]]:
    """DP groups without a place, by replica to be made or completed (see planner.goal).

    A replica that leaves is not completed; one whose DPGroups are being deleted waits until their names are free.
    """
    held: Mapping[int, list[GroupView]] = defaultdict(list)
    for group in groups:
        held[group.replica].append(group)
    staying = {one.replica: one.revision for one in groups if not one.deleted and one.leaving is None}
    wanted = executor.goal.made_at(staying)
    missing: dict[int, tuple[Slot, ...]] = {}
    for replica, revision in wanted.items():
        template = executor.template(revision)
        blocked = any(one.deleted or one.leaving or one.revision != revision for one in held[replica])
        if template is None or blocked:
            continue
        absent = set(range(template.spec.parallelism.dp)) - {group.index for group in held[replica]}
        if absent:
            missing[replica] = tuple(Slot(executor, template, revision, replica, index) for index in sorted(absent))
    return missing


def _request(slots: Sequence[Slot], groups: Sequence[GroupView]) -> Request:
    """What is missing of a replica; on the chip of its other groups, if it has some."""
    spec, executor = slots[0].template.spec, slots[0].executor.key
    others = (group for group in groups if group.replica != slots[0].replica and not group.deleted)
    beside = frozenset(group.node for group in others if group.leaving is None)
    chips = [group.chip for group in groups if group.replica == slots[0].replica]
    blocks = tuple(Block(slot.key, spec.parallelism.tp) for slot in slots)
    allowed = tuple(chips[:1]) or tuple(spec.chips)
    return Request(spec.role, spec.superpod_ref.name, allowed, blocks, mates=executor, beside=beside)


def _body(slot: Slot, spot: Spot, attempt: int) -> Object:
    return dp_group(
        slot.executor.obj,
        slot.template.spec,
        slot.replica,
        slot.index,
        node=spot.node,
        chip=spot.chip,
        attempt=attempt,
        revision=slot.revision,
    )


def _by_group(pods: Sequence[PodView]) -> dict[str, list[PodView]]:
    found: dict[str, list[PodView]] = defaultdict(list)
    for pod in pods:
        found[pod.group].append(pod)
    return found
