"""The tree that ``status`` shows: deployment → TaskExecutors → instances → DP groups → pods, with conditions. Pure.

Everything is read from what the objects' statuses and pods say; nothing is judged anew. Children are found by label,
so that an object whose owner is gone is still seen: TaskExecutors without a deployment are trees of their own.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from xdeepserve_operator.api import names
from xdeepserve_operator.planner.conditions import READY, find_condition
from xdeepserve_operator.planner.pods import PodView, view_pod

Object = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Branch:
    """One object and what hangs below it. ``ready`` is None for what has no such condition (yet)."""

    kind: str
    name: str
    ready: bool | None = None
    reason: str = ""
    message: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    conditions: Sequence[Mapping[str, Any]] = ()
    children: tuple["Branch", ...] = ()

    def document(self) -> dict[str, Any]:
        """The form for JSON and YAML; empty parts are left out."""
        parts: dict[str, Any] = {
            "kind": self.kind,
            "name": self.name,
            "ready": self.ready,
            "reason": self.reason,
            "message": self.message,
            **self.facts,
            "conditions": [dict(one) for one in self.conditions],
            "children": [child.document() for child in self.children],
        }
        return {word: value for word, value in parts.items() if value not in (None, "", [])}


@dataclass(frozen=True)
class World:
    """The objects of one namespace."""

    deployments: Sequence[Object]
    executors: Sequence[Object]
    groups: Sequence[Object]
    pods: Sequence[Object]


def trees(world: World, name: str | None = None) -> list[Branch]:
    """A tree for every ModelDeployment and every TaskExecutor without one, or for those named ``name``."""
    return _Trees(world).roots(name)


class _Trees:
    def __init__(self, world: World) -> None:
        self._world = world
        self._executors = _by(world.executors, lambda obj: _label(obj, names.LABEL_DEPLOYMENT))
        self._groups = _by(world.groups, lambda obj: str(obj["spec"]["executorRef"]["name"]))
        views = [view_pod(pod) for pod in world.pods]
        self._engines = _by(views, lambda pod: pod.group)
        self._shells = {pod.name: pod for pod in views if pod.component == names.COMPONENT_SHELL}
        labels = {pod["metadata"]["name"]: _label(pod, names.LABEL_DEPLOYMENT) for pod in world.pods}
        frontends = [pod for pod in views if pod.component == names.COMPONENT_FRONTEND]
        self._frontends = _by(frontends, lambda pod: labels[pod.name])

    def roots(self, name: str | None) -> list[Branch]:
        deployments = {_name(obj) for obj in self._world.deployments}
        lone = [obj for obj in self._world.executors if _label(obj, names.LABEL_DEPLOYMENT) not in deployments]
        found = [self._deployment(obj) for obj in self._world.deployments if name in (None, _name(obj))]
        return found + [self._executor(obj) for obj in lone if name in (None, _name(obj))]

    def _deployment(self, obj: Object) -> Branch:
        status = obj.get("status", {})
        name = _name(obj)
        executors = [self._executor(one) for one in sorted(self._executors[name], key=_name)]
        frontends = [_pod(pod) for pod in self._frontends[name]]
        facts = {"endpoint": status.get("endpoint", ""), "roles": status.get("readyRoles", "")}
        return _branch("ModelDeployment", obj, facts, [*frontends, *executors])

    def _executor(self, obj: Object) -> Branch:
        spec, status = obj["spec"], obj.get("status", {})
        replicas: dict[int, list[Object]] = defaultdict(list)
        for group in self._groups[_name(obj)]:
            replicas[group["spec"]["replica"]].append(group)
        told = {one["index"]: one for one in status.get("instances") or ()}
        numbers = sorted({*replicas, *told})
        wide = spec.get("parallelism", {})
        facts = {
            "role": spec["role"],
            "serving": f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
            "warm": status.get("warm", 0),
            "spread": f"dp {wide.get('dp', 1)}, tp {wide.get('tp', 1)}, ep {wide.get('ep', 1)}",
        }
        below = [self._instance(_name(obj), number, told.get(number), replicas[number]) for number in numbers]
        return _branch("TaskExecutor", obj, facts, below)

    def _instance(self, executor: str, number: int, told: Mapping[str, Any] | None, groups: list[Object]) -> Branch:
        name = f"{executor}-{number}"
        shell = self._shells.get(f"{name}-shell")
        facts = {"epoch": told["epoch"], "revision": told["revision"]} if told is not None else {}
        ready = bool(told["ready"]) if told is not None else None
        ordered = sorted(groups, key=lambda group: group["spec"]["index"])
        below = [self._group(group, served=ready or None) for group in ordered]
        return Branch(
            "Instance", name, ready, facts=facts, children=(*([_pod(shell)] if shell is not None else []), *below)
        )

    def _group(self, obj: Object, *, served: bool | None) -> Branch:
        """``served``: True when its whole instance serves; then a group that says nothing has joined."""
        spec, status = obj["spec"], obj.get("status", {})
        ranks = status.get("ranks") or ()
        dies = {rank["pod"]: [one["die"] for one in ranks if one["pod"] == rank["pod"]] for rank in ranks}
        facts = {
            "chip": spec["chip"],
            "node": spec["node"],
            "state": ranks[0]["state"] if ranks else "Joined" if served else "Pending",
            "epoch": status.get("epoch", 0),
            "kvUsagePercent": status.get("kvUsagePercent", 0),
        }
        pods = [_pod(pod, dies.get(pod.name, ())) for pod in self._engines[_name(obj)]]
        branch = _branch("DPGroup", obj, facts, pods)
        return replace(branch, ready=served, reason="Joined") if branch.ready is None and served else branch


def _branch(kind: str, obj: Object, facts: Mapping[str, Any], children: Iterable[Branch]) -> Branch:
    ready = find_condition(obj, READY) or {}
    return Branch(
        kind,
        _name(obj),
        ready["status"] == "True" if ready else None,
        str(ready.get("reason", "")),
        str(ready.get("message", "")),
        facts,
        tuple(obj.get("status", {}).get("conditions") or ()),
        tuple(children),
    )


def _pod(pod: PodView, dies: Sequence[int] = ()) -> Branch:
    """``dies`` are those in the group's status; the pod's own annotation is newer."""
    known = sorted(pod.dies) or [die for die in dies if die >= 0]
    reason = "Terminating" if pod.terminating else "" if pod.ready else pod.phase
    facts = {"component": pod.component, "node": pod.node, "ip": pod.ip, "dies": known}
    return Branch("Pod", pod.name, pod.ready, reason, str(pod.error or ""), facts)


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _label(obj: Object, name: str) -> str:
    return str((obj["metadata"].get("labels") or {}).get(name, ""))


def _by(items: Iterable[T], key: Callable[[T], str]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = defaultdict(list)
    for item in items:
        found[key(item)].append(item)
    return found
