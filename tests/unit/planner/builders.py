"""Small worlds for the planner: servers, pods, groups and instances with one argument for what matters."""

from datetime import UTC, datetime
from typing import Any

from flowserve.wire import EngineState, EngineStatus, RankReport, ShellStatus
from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.base import Chip
from xdeepserve_operator.api.v1alpha1.superpod import Plane
from xdeepserve_operator.planner.groups import Departure, GroupView
from xdeepserve_operator.planner.instance import InstanceView, RankView
from xdeepserve_operator.planner.pods import PodView, view_pod
from xdeepserve_operator.planner.recovery import Fault
from xdeepserve_operator.planner.servers import Health, Server

NOW = datetime(2025, 1, 1, 12, tzinfo=UTC)
HEALTHY = Health(ready=True, lost=False, schedulable=True, unhealthy=frozenset())
Object = dict[str, Any]


def server(
    name: str,
    free: int,
    *,
    chip: Chip = "910C",
    capacity: int | None = None,
    pod: str = "pod-a",
    plane: Plane = "RoCE",
) -> Server:
    """A server with ``free`` free dies."""
    size = capacity or (16 if chip == "910C" else 8)
    return Server(name, pod, "pool", chip, size, size, size - free, HEALTHY, plane=plane)


def node(name: str = "n0", chip: str = "910C", **labels: str) -> Object:
    """A Node as Ascend's components label it."""
    kind, dies = ("module-a3-16-super-pod", "16") if chip == "910C" else ("module-910b-8", "8")
    return {
        "metadata": {
            "name": name,
            "labels": {
                names.NODE_LABEL_CHIP: chip,
                names.NODE_LABEL_ACCELERATOR_TYPE: kind,
                names.NODE_LABEL_SUPERPOD: "0",
                **labels,
            },
        },
        "status": {
            "capacity": {names.RESOURCE_DIE: dies},
            "allocatable": {names.RESOURCE_DIE: dies},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str = "te-0-dp0-0", **fields: Any) -> Object:
    """An engine pod; ``fields`` replace top-level ones."""
    container = {"resources": {"requests": {names.RESOURCE_DIE: "1"}, "limits": {names.RESOURCE_DIE: "1"}}}
    group, _, attempt = name.rpartition("-")
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {names.LABEL_GROUP: group, names.LABEL_ATTEMPT: attempt},
            "annotations": {names.POD_ANNOTATION_DIES: "Ascend910-3"},
        },
        "spec": {"nodeName": "n0", "containers": [container]},
        "status": {
            "phase": "Running",
            "podIP": "127.1.0.1",
            "containerStatuses": [{"state": {"running": {"startedAt": "2025-01-01T11:00:00Z"}}}],
        },
    } | fields


def pod_view(**fields: Any) -> PodView:
    """A running engine pod as the planner sees it."""
    return view_pod(pod(**fields))


def group(
    index: int = 0,
    *,
    replica: int = 0,
    revision: str = "r1",
    attempt: int = 0,
    node: str = "n0",
    leaving: Departure | None = None,
) -> GroupView:
    """A placed DP group of one die."""
    name = f"te-{replica}-dp{index}"
    return GroupView("default", name, "te", replica, index, 1, "910C", node, attempt, revision, False, leaving)


def status(rank: int, *, epoch: int = 0, state: EngineState = "Waiting", life: int = 0) -> EngineStatus:
    """What an engine says."""
    return EngineStatus(
        name=f"te-0-dp{rank}", incarnation=f"e{rank}.{life}", fabric_uri=f"shm:///e{rank}", state=state, epoch=epoch
    )


def instance(
    *statuses: EngineStatus | None,
    epoch: int = 0,
    known: int = 0,
    silent: float = 0.1,
    ready: bool = False,
    replica: int = 0,
    revision: str = "r1",
    fault: Fault | None = None,
    placed: bool = True,
    leaving: Departure | None = None,
) -> InstanceView:
    """An instance whose shell reports ``statuses`` (None: never heard) and spreads ``epoch``."""
    reports = tuple(
        RankReport(rank=rank, host=f"127.1.0.{rank + 1}", silent_seconds=silent, ever_heard=one is not None, status=one)
        for rank, one in enumerate(statuses)
    )
    ranks = tuple(
        RankView(
            rank,
            group(rank, replica=replica, revision=revision, leaving=leaving) if placed else None,
            _at(rank) if placed else None,
            reports[rank],
            fault if rank == 0 else None,
        )
        for rank in range(len(statuses))
    )
    name = f"te-{replica}"
    report = ShellStatus(instance=name, incarnation="s1", epoch=epoch, ranks=reports, ready=ready)
    return InstanceView(name, replica, ranks, None, report, epoch=max(epoch, known))


def _at(rank: int) -> PodView:
    running = pod(f"te-0-dp{rank}-0")
    running["status"]["podIP"] = f"127.1.0.{rank + 1}"
    return view_pod(running)
