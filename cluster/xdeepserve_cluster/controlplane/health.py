"""What every component of a cluster is doing now."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from xdeepserve_cluster.binaries import CLUSTER_TOOLS
from xdeepserve_cluster.controlplane.cluster import Cluster, get, layout_of
from xdeepserve_cluster.controlplane.components import components
from xdeepserve_cluster.controlplane.readiness import first_problem
from xdeepserve_cluster.controlplane.state import load_state
from xdeepserve_cluster.processes import resident_bytes


@dataclass(frozen=True)
class ComponentStatus:
    """`problem` says why a component that runs is not ready; a dead one has neither process nor memory."""

    name: str
    state: Literal["ready", "not ready", "dead"]
    pid: int | None
    port: int
    resident_bytes: int
    log: str
    problem: str | None


@dataclass(frozen=True)
class ClusterStatus:
    """A cluster and all its components; ready when they all are."""

    cluster: Cluster
    components: list[ComponentStatus]

    @property
    def ready(self) -> bool:
        return all(component.state == "ready" for component in self.components)

    def document(self) -> dict[str, Any]:
        """For machines: plain JSON types only."""
        cluster = self.cluster
        return {
            "name": cluster.name,
            "ready": self.ready,
            "server": cluster.server,
            "kubeconfig": str(cluster.kubeconfig),
            "spec": cluster.spec.model_dump(mode="json"),
            "components": [asdict(component) for component in self.components],
        }


def status(name: str = "demo", *, root: Path | None = None) -> ClusterStatus:
    """Ask every component. Raises ClusterError if there is no such cluster."""
    cluster = get(name, root)
    layout = layout_of(name, root)
    state = load_state(layout)
    assert state is not None
    running = state.running()
    # The checks do not depend on where the binaries are.
    tools = {tool: Path(tool) for tool in CLUSTER_TOOLS}
    found = []
    for component in components(state.spec, layout, state.ports, tools):
        process = running.get(component.name)
        problem = first_problem(component.checks) if process else "no process"
        found.append(
            ComponentStatus(
                name=component.name,
                state="dead" if process is None else "not ready" if problem else "ready",
                pid=process and process.pid,
                port=state.ports[component.name],
                resident_bytes=resident_bytes(process) if process else 0,
                log=str(layout.log(component.name)),
                problem=problem,
            )
        )
    return ClusterStatus(cluster, found)
