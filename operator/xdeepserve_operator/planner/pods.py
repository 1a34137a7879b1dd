"""What decisions need to know of a Pod, read once from its dict.

Nothing here trusts that a field exists: pods of other tenants are read too, in any state of their lives.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from xdeepserve_operator.api import names
from xdeepserve_operator.planner.conditions import parse_time
from xdeepserve_operator.planner.memory import remembered

EXIT_UNUSABLE = 78  # EX_CONFIG: configuration or checkpoint cannot be used; starting again will not help
TERMINAL = frozenset({"Succeeded", "Failed"})
_STUCK = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "ErrImagePull", "ImagePullBackOff", "InvalidImageName"}
)
_ERROR_LINE = re.compile(r"^xdeepserve: ([^:\s]+): (.+)$")


@dataclass(frozen=True, slots=True)
class EngineError:
    """Why an engine gave up, in its own words."""

    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod.

    ``dies`` are the numbers that the device plugin gave it (empty before it did), ``dies_requested`` what it asked
    for. ``running_since`` is None while its container does not run; ``started`` says that its start-up probe passed.
    ``forced`` marks a deletion without grace. ``stuck`` says why its container cannot be started, or keeps ending;
    empty while that is not so. ``server`` is its ``node``, or the one that it is meant for.
    """

    namespace: str
    name: str
    node: str
    phase: str
    ip: str
    terminating: bool
    forced: bool
    ready: bool
    component: str
    replica: int
    group: str
    attempt: int
    revision: str
    dies_requested: int
    dies: frozenset[int]
    running_since: datetime | None
    unschedulable_since: datetime | None
    error: EngineError | None
    stuck: str = ""
    started: bool = False
    server: str = ""

    @property
    def terminal(self) -> bool:
        """Whether all its containers ended for good; it then holds no dies."""
        return self.phase in TERMINAL

    @property
    def alive(self) -> bool:
        """Whether it may still do its work."""
        return not self.terminating and not self.terminal


def server_of(pod: Mapping[str, Any]) -> str:
    """The server that a pod is bound to, or, of a warm engine, is going to be; empty when that is not known."""
    meant = (pod["metadata"].get("annotations") or {}).get(names.ANNOTATION_SERVER, "")
    return pod.get("spec", {}).get("nodeName") or str(meant)


def dies_requested(pod: Mapping[str, Any]) -> int:
    """Dies that the scheduler charges for a pod: the sum of its containers, or its greediest init container."""
    spec = pod.get("spec", {})
    main = sum(_container_dies(container) for container in spec.get("containers") or ())
    return max([main, *(_container_dies(container) for container in spec.get("initContainers") or ())])


@remembered
def view_pod(pod: Mapping[str, Any]) -> PodView:
    """Reads a Pod."""
    metadata, status = pod["metadata"], pod.get("status", {})
    labels = metadata.get("labels") or {}
    container: Mapping[str, Any] = next(iter(status.get("containerStatuses") or ()), {})
    running: Mapping[str, Any] | None = container.get("state", {}).get("running")
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    scheduled = conditions.get("PodScheduled", {})
    return PodView(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        node=pod.get("spec", {}).get("nodeName") or "",
        phase=status.get("phase", "Pending"),
        ip=status.get("podIP") or "",
        terminating="deletionTimestamp" in metadata,
        forced=metadata.get("deletionGracePeriodSeconds") == 0,
        ready=conditions.get("Ready", {}).get("status") == "True",
        component=labels.get(names.LABEL_COMPONENT, ""),
        replica=_number(labels.get(names.LABEL_REPLICA)),
        group=labels.get(names.LABEL_GROUP, ""),
        attempt=_number(labels.get(names.LABEL_ATTEMPT)),
        revision=labels.get(names.LABEL_REVISION, ""),
        dies_requested=dies_requested(pod),
        dies=names.parse_dies((metadata.get("annotations") or {}).get(names.POD_ANNOTATION_DIES)),
        running_since=None if running is None else parse_time(running.get("startedAt")),
        unschedulable_since=(
            parse_time(scheduled.get("lastTransitionTime")) if scheduled.get("status") == "False" else None
        ),
        error=_engine_error(container),
        stuck=_stuck(container),
        started=container.get("started") is True,
        server=server_of(pod),
    )


def next_attempt(pods: Iterable[PodView], spent: int = -1) -> int:
    """An attempt number no pod of the group has, not even one that still terminates: pod names never collide."""
    return max([spent, *(pod.attempt for pod in pods)]) + 1


def _number(label: str | None) -> int:
    return int(label) if label is not None and label.isdecimal() else -1


def _container_dies(container: Mapping[str, Any]) -> int:
    resources = container.get("resources", {})
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.get(names.RESOURCE_DIE, 0)
    return int(asked)


def _stuck(container: Mapping[str, Any]) -> str:
    """Why the container waits, in words that stay the same while it does: no counts, no times."""
    waiting: Mapping[str, Any] = container.get("state", {}).get("waiting") or {}
    reason = waiting.get("reason", "")
    if reason in _STUCK:
        return f"{reason}: {waiting.get('message', '')}".removesuffix(": ")
    if reason != "CrashLoopBackOff":
        return ""
    ended: Mapping[str, Any] = container.get("lastState", {}).get("terminated") or {}
    lines = (ended.get("message") or "").strip().splitlines() or [str(ended.get("reason", ""))]
    return f"{reason}: exit code {ended.get('exitCode', '?')}: {lines[-1].strip()}".removesuffix(": ")


def _engine_error(container: Mapping[str, Any]) -> EngineError | None:
    """The reason of the container's last exit, when that exit said that starting again will not help."""
    ended: Mapping[str, Any] | None = None
    for state in (container.get("state", {}), container.get("lastState", {})):
        ended = ended or state.get("terminated")
    if ended is None or ended.get("exitCode") != EXIT_UNUSABLE:
        return None
    lines = (ended.get("message") or "").strip().splitlines()
    for line in reversed(lines):
        if match := _ERROR_LINE.match(line.strip()):
            return EngineError(match[1], match[2])
    return EngineError("Unusable", lines[-1].strip() if lines else f"exit code {EXIT_UNUSABLE} without a message")
