"""Reads the store into what the planner decides on: a TaskExecutor's replicas, a SuperPod's servers."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from flowserve.wire import RankReport, ShellStatus
from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.executor import Gang, TaskExecutorSpec
from xdeepserve_operator.api.v1alpha1.superpod import SuperPodSpec
from xdeepserve_operator.controllers.objects import label, leaving
from xdeepserve_operator.controllers.ports import Object, Store
from xdeepserve_operator.planner.goal import Goal, stable_revision
from xdeepserve_operator.planner.groups import GroupView, view_group
from xdeepserve_operator.planner.instance import InstanceView, RankView
from xdeepserve_operator.planner.memory import remembered
from xdeepserve_operator.planner.pods import PodView, view_pod
from xdeepserve_operator.planner.recovery import Patience, judge
from xdeepserve_operator.planner.revision import revision_of
from xdeepserve_operator.planner.servers import Server, dies_freeing, dies_held, node_health, survey
from xdeepserve_operator.planner.warm import Idle, idle
from xdeepserve_operator.resources import children
from xdeepserve_operator.resources.revision import Template, template_of

_ALONE = Gang(name="alone", members=1)


@remembered
def _spec_of(obj: Mapping[str, Any]) -> TaskExecutorSpec:
    """The parsed spec: every group of an instance asks for it."""
    return TaskExecutorSpec.model_validate(obj["spec"])


@dataclass(frozen=True)
class Executor:
    """A TaskExecutor with its spec parsed; its other revisions are looked up in ``store``."""

    obj: Object
    spec: TaskExecutorSpec
    image: str
    revision: str
    store: Store

    @classmethod
    def read(cls, store: Store, obj: Object, image: str) -> "Executor":
        """Parses a TaskExecutor; pydantic's ValidationError when the spec is none of ours."""
        spec = _spec_of(obj)
        return cls(obj, spec, image, revision_of(spec, image), store)

    def template(self, revision: str) -> Template | None:
        """What instances of ``revision`` are made from; None when nobody remembers."""
        if revision not in self._templates:
            stored = self.store.get("ControllerRevision", self.namespace, children.revision_name(self.name, revision))
            self._templates[revision] = None if stored is None else template_of(stored, self.obj["spec"])
        return self._templates[revision]

    @cached_property
    def _templates(self) -> dict[str, Template | None]:
        """Those that were asked for: every instance of a rollout asks for the same few."""
        return {self.revision: Template(self.spec, self.image)}

    @cached_property
    def goal(self) -> Goal:
        """What its replicas should be."""
        last = self.obj.get("status", {}).get("currentRevision", "")
        stable = stable_revision(self.revision, last, self.template(last) is not None)
        return Goal(self.spec.replicas, self.revision, stable, self.spec.update, self.spec.rollout.paused)

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return str(self.obj["metadata"]["namespace"])

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.obj["metadata"]["name"])

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"

    @property
    def gang(self) -> str:
        """Key of its gang; a TaskExecutor without one is alone in a gang that no name can clash with."""
        gang = self.spec.gang
        return f"{self.key}/" if gang is None else f"{self.namespace}/{gang.name}"

    @property
    def gang_timeout(self) -> int:
        """Seconds in which all its pods must be on their servers."""
        return (self.spec.gang or _ALONE).timeout_seconds

    @property
    def token_secret(self) -> str:
        """Secret with its control token."""
        reference = self.spec.control_token_secret_ref
        return children.control_secret_name(self.name) if reference is None else reference.name


def groups_of(store: Store, executor: Executor) -> list[GroupView]:
    """Its DP groups, also those that are being deleted."""
    return [
        view_group(group) for group in store.list("DPGroup", executor.namespace, {names.LABEL_EXECUTOR: executor.name})
    ]


def pods_of(store: Store, executor: Executor) -> list[PodView]:
    """Its engine and shell pods."""
    return [view_pod(pod) for pod in store.list("Pod", executor.namespace, {names.LABEL_EXECUTOR: executor.name})]


def instances(
    store: Store,
    executor: Executor,
    reports: Mapping[int, ShellStatus],
    patience: Patience,
    now: datetime,
) -> tuple[InstanceView, ...]:
    """Every replica that is asked for or of which something is left, by number.

    A replica has all the ranks that its revision says; one of a revision that nobody remembers has those it has.
    """
    groups: dict[int, dict[int, GroupView]] = defaultdict(dict)
    draining: dict[int, int] = defaultdict(int)
    for group in groups_of(store, executor):
        if group.deleted:
            draining[group.replica] += 1
        else:
            groups[group.replica][group.index] = group
    current = {(one.name, one.attempt) for replica in groups.values() for one in replica.values()}
    engines: dict[str, PodView] = {}
    shells: dict[int, PodView] = {}
    for pod in pods_of(store, executor):
        if pod.component == names.COMPONENT_SHELL:
            shells[pod.replica] = pod
        elif (pod.group, pod.attempt) in current:
            engines[pod.group] = pod
        else:
            draining[pod.replica] += 1
    epochs = {one["index"]: one for one in executor.obj.get("status", {}).get("instances") or ()}

    def view(replica: int) -> InstanceView:
        held, report = groups.get(replica, {}), reports.get(replica)
        revision = next((one.revision for one in held.values()), executor.revision)
        template = executor.template(revision)
        wanted = sorted(held) if template is None else range(template.spec.parallelism.dp)
        known = epochs.get(replica)
        said = {one.rank: one for one in report.ranks} if report is not None else {}
        return InstanceView(
            name=children.instance_name(executor.name, replica),
            replica=replica,
            ranks=tuple(_rank(store, index, held.get(index), engines, said, patience, now) for index in wanted),
            shell=shells.get(replica),
            report=report,
            draining=draining[replica],
            epoch=max(
                known["epoch"] if known is not None and known["revision"] == revision else 0,
                report.epoch if report is not None else 0,
            ),
        )

    present = {*range(executor.spec.replicas), *groups, *shells}
    return tuple(view(replica) for replica in sorted(present) if replica >= 0)


def servers_of(store: Store, superpod: str, without: Set[tuple[str, str]] = frozenset()) -> tuple[Server, ...] | None:
    """A SuperPod's servers, None when there is no such SuperPod; ``without``: groups that are about to move."""
    obj = store.get("SuperPod", None, superpod)
    if obj is None or leaving(obj):
        return None
    held = dies_held(store.list("Pod"), map(view_group, store.list("DPGroup")), without)
    return survey(superpod, SuperPodSpec.model_validate(obj["spec"]), store.list("Node"), held)


def idle_of(store: Store) -> list[Idle]:
    """Warm engines of all TaskExecutors that no DP group is to have."""
    executors = store.list("TaskExecutor")
    warm = {names.LABEL_COMPONENT: names.COMPONENT_WARM}
    spaces = sorted({one["metadata"]["namespace"] for one in executors})
    owners = {(space, label(pod, names.LABEL_EXECUTOR)) for space in spaces for pod in store.list("Pod", space, warm)}
    found: list[Idle] = []
    for namespace, name in sorted(owners):
        owner = store.get("TaskExecutor", namespace, name)
        mine = {names.LABEL_EXECUTOR: name}
        groups = map(view_group, store.list("DPGroup", namespace, mine))
        pods = [view_pod(pod) for pod in store.list("Pod", namespace, mine)]
        found += idle(groups, pods, 0 if owner is None else owner["spec"].get("priority", 0))
    return found


def freeing_of(store: Store, kept: Iterable[Idle]) -> Mapping[str, int]:
    """Dies by server that will be free when what leaves is gone; those of ``kept`` are not."""
    keys = {one.key for one in kept}
    return dies_freeing(store.list("Pod"), map(view_group, store.list("DPGroup")), keys)


def _rank(
    store: Store,
    index: int,
    group: GroupView | None,
    engines: Mapping[str, PodView],
    said: Mapping[int, RankReport],
    patience: Patience,
    now: datetime,
) -> RankView:
    if group is None:
        return RankView(index)
    pod = engines.get(group.name)
    report = said.get(index)
    if pod is None or report is None or not pod.ip or report.host != pod.ip:
        report = None
    health = node_health(store.get("Node", None, pod.node or group.node)) if pod is not None else None
    return RankView(index, group, pod, report, judge(pod, health, report, patience, now))
