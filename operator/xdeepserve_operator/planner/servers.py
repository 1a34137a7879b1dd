"""Servers of a SuperPod, as their nodes show them.

A node belongs to a SuperPod when it carries the SuperPod's id and a pool's selector. Its chip label alone is not
believed: ``accelerator-type`` and the number of dies must agree with the pool, or the server is listed with a
mismatch and never used. A server's free dies are its healthy dies (what the device plugin lets the scheduler give
out) less those held: dies asked for by every pod bound to it, whoever owns the pod, and dies of DP groups placed
there whose pod is not bound yet.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.base import Chip
from xdeepserve_operator.api.v1alpha1.superpod import Plane, Pool, SuperPodSpec
from xdeepserve_operator.planner.groups import GroupView
from xdeepserve_operator.planner.pods import TERMINAL, dies_requested, server_of

# Ascend's accelerator types name the module, the cards on it and, for a SuperPod, that it is one.
_CHIP_OF_TYPE: tuple[tuple[str, Chip], ...] = (("module-910b-", "910B"), ("module-a3-", "910C"))
_BLOCKING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True)
class Health:
    """What a node says of itself. ``lost``: nobody hears it any more, its pods are as good as dead."""

    ready: bool
    lost: bool
    schedulable: bool
    unhealthy: frozenset[int]


@dataclass(frozen=True, slots=True)
class Server:
    """One server; counts are dies. ``plane``: the network that its KV crosses, the one its pool prefers."""

    name: str
    superpod: str
    pool: str
    chip: Chip
    capacity: int
    allocatable: int
    used: int
    health: Health
    mismatch: str | None = None
    plane: Plane = "RoCE"

    @property
    def usable(self) -> bool:
        """Whether new pods may go there."""
        return self.health.schedulable and self.mismatch is None

    @property
    def free(self) -> int:
        """Dies that a new pod can get."""
        return max(0, self.allocatable - self.used) if self.usable else 0

    def holding(self, dies: int) -> "Server":
        """This server with ``dies`` more of its dies held; fewer, if negative."""
        return replace(self, used=self.used + dies)


def node_health(node: Mapping[str, Any] | None) -> Health:
    """Reads a Node's health; a node that does not exist is lost."""
    if node is None:
        return Health(ready=False, lost=True, schedulable=False, unhealthy=frozenset())
    conditions: Iterable[Mapping[str, Any]] = node.get("status", {}).get("conditions") or ()
    ready = next((condition.get("status") for condition in conditions if condition.get("type") == "Ready"), None)
    spec = node.get("spec", {})
    blocked = any(taint.get("effect") in _BLOCKING_EFFECTS for taint in spec.get("taints") or ())
    annotations = node["metadata"].get("annotations") or {}
    return Health(
        ready=ready == "True",
        lost=ready == "Unknown",
        schedulable=ready == "True" and not spec.get("unschedulable", False) and not blocked,
        unhealthy=names.parse_dies(annotations.get(names.NODE_ANNOTATION_UNHEALTHY)),
    )


def dies_held(
    pods: Iterable[Mapping[str, Any]],
    groups: Iterable[GroupView],
    without: Set[tuple[str, str]] = frozenset(),
) -> Counter[str]:
    """Dies held on each node: by bound pods, and by DP groups whose pod is not bound yet.

    ``without`` names groups, as (namespace, name), that are about to move: neither they nor their pods are counted.
    """
    held: Counter[str] = Counter()
    bound: set[tuple[str, str, str]] = set()
    for pod in _bound(pods):
        bound.add(pod.life)
        if (pod.namespace, pod.group) not in without:
            held[pod.node] += dies_requested(pod.obj)
    for view in groups:
        key = (view.namespace, view.name)
        if (*key, str(view.attempt)) not in bound and key not in without:
            held[view.node] += view.dies
    return held


def dies_freeing(
    pods: Iterable[Mapping[str, Any]], groups: Iterable[GroupView], idle: Set[tuple[str, str]] = frozenset()
) -> Counter[str]:
    """Those of the dies held that will be free without anybody's doing: what leaves, ends or belongs to nothing.

    An instance leaves as a whole, even if so far only some of its groups say so. The dies of a warm engine that a DP
    group is to have are the group's; those of ``idle`` ones, as (namespace, name), stay held.
    """
    known = {(view.namespace, view.name): view for view in groups}
    leaving = {view.instance for view in known.values() if view.leaving is not None}
    going = {key for key, view in known.items() if view.deleted or view.instance in leaving}
    freeing: Counter[str] = Counter()
    bound: set[tuple[str, str, str]] = set()
    for pod in _bound(pods):
        bound.add(pod.life)
        metadata = pod.obj["metadata"]
        view = known.get((pod.namespace, pod.group))
        abandoned = bool(pod.group) and (view is None or str(view.attempt) != pod.attempt)
        warm = (metadata.get("labels") or {}).get(names.LABEL_COMPONENT) == names.COMPONENT_WARM
        given = warm and (pod.namespace, metadata["name"]) not in idle
        if "deletionTimestamp" in metadata or abandoned or given or (pod.namespace, pod.group) in going:
            freeing[pod.node] += dies_requested(pod.obj)
    for (namespace, name), view in known.items():
        if (namespace, name) in going and (namespace, name, str(view.attempt)) not in bound:
            freeing[view.node] += view.dies
    return freeing


class _Bound(NamedTuple):
    """A pod that holds its server's dies; ``life`` names the attempt of the DP group that it is, if it is one."""

    obj: Mapping[str, Any]
    node: str
    namespace: str
    group: str
    attempt: str

    @property
    def life(self) -> tuple[str, str, str]:
        return self.namespace, self.group, self.attempt


def _bound(pods: Iterable[Mapping[str, Any]]) -> Iterator[_Bound]:
    """Pods that have a server and have not ended."""
    for pod in pods:
        node = server_of(pod)
        if node and pod.get("status", {}).get("phase") not in TERMINAL:
            metadata = pod["metadata"]
            labels = metadata.get("labels") or {}
            group, attempt = labels.get(names.LABEL_GROUP, ""), labels.get(names.LABEL_ATTEMPT, "")
            yield _Bound(pod, node, metadata.get("namespace", ""), group, attempt)


def survey(
    superpod: str, spec: SuperPodSpec, nodes: Iterable[Mapping[str, Any]], held: Mapping[str, int]
) -> tuple[Server, ...]:
    """The servers of a SuperPod by name, whether they can be used or not."""
    found = (_server(superpod, spec, node, held) for node in nodes)
    return tuple(sorted((server for server in found if server is not None), key=lambda server: server.name))


def _server(superpod: str, spec: SuperPodSpec, node: Mapping[str, Any], held: Mapping[str, int]) -> Server | None:
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    if labels.get(names.NODE_LABEL_SUPERPOD) != spec.superpod_id:
        return None
    pools = [pool for pool in spec.pools if pool.node_selector.items() <= labels.items()]
    if not pools:
        return None
    chip = labels.get(names.NODE_LABEL_CHIP)
    pool = next((pool for pool in pools if pool.chip == chip), pools[0])
    status = node.get("status", {})
    capacity = _count(status.get("capacity"))
    name = node["metadata"]["name"]
    return Server(
        name=name,
        superpod=superpod,
        pool=pool.name,
        chip=pool.chip,
        capacity=capacity,
        allocatable=_count(status.get("allocatable")),
        used=held.get(name, 0),
        health=node_health(node),
        mismatch=_mismatch(pool, chip, labels.get(names.NODE_LABEL_ACCELERATOR_TYPE), capacity),
        plane=pool.planes[0],
    )


def _mismatch(pool: Pool, chip: str | None, accelerator: str | None, capacity: int) -> str | None:
    """The first way in which a node contradicts the pool it was matched to."""
    if chip != pool.chip:
        return f"label {names.NODE_LABEL_CHIP} is {chip or 'missing'}, pool {pool.name} is {pool.chip}"
    of_type = next((known for prefix, known in _CHIP_OF_TYPE if (accelerator or "").startswith(prefix)), None)
    if of_type != pool.chip:
        label = names.NODE_LABEL_ACCELERATOR_TYPE
        return f"label {label} is {accelerator or 'missing'}, which is no {pool.chip} server"
    if capacity != pool.dies_per_node:
        return f"{names.RESOURCE_DIE} shows {capacity} dies, pool {pool.name} says {pool.dies_per_node}"
    return None


def _count(resources: Mapping[str, str] | None) -> int:
    text = str((resources or {}).get(names.RESOURCE_DIE, "0"))
    return int(text) if text.isdecimal() else 0
