"""What all pods of the agent share: settings, the API, the servers' state, and what every process starts with."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from xdeepserve_cluster.agent.addresses import Addresses
from xdeepserve_cluster.agent.changes import Changes
from xdeepserve_cluster.agent.devices import DieAllocator
from xdeepserve_cluster.agent.process import ContainerProcess
from xdeepserve_cluster.agent.servers import Server
from xdeepserve_cluster.controlplane.layout import MARKER
from xdeepserve_operator.api import names
from xdeepserve_operator.runtime.kube import KubeApi

# In the environment of every process of a pod, with the agent's state directory as the value.
POD_MARKER = "XDEEPSERVE_AGENT_STATE"


@dataclass(frozen=True)
class Settings:
    """Where things are on this machine."""

    state_dir: Path
    shm_dir: Path
    models_dir: Path | None
    api_url: str  # of the API server, for kubeconfigs of pods
    api_host: str
    api_port: str

    def pod_directory(self, uid: str) -> Path:
        """Everything that a pod has on disk."""
        return self.state_dir / "pods" / uid


@dataclass
class ServerState:
    """A server with what changes about it; `changes` tells of `unhealthy` and `lost`."""

    server: Server
    unhealthy: frozenset[int] = frozenset()
    lost: bool = False
    changes: Changes = field(default_factory=Changes)
    dies: DieAllocator = field(init=False)

    def __post_init__(self) -> None:
        self.dies = DieAllocator(self.server.dies)


@dataclass
class Host:
    """The machine that plays all servers."""

    settings: Settings
    api: KubeApi
    servers: dict[str, ServerState]
    addresses: Addresses
    clock: Callable[[], float] = time.time
    processes: set[ContainerProcess] = field(default_factory=set)
    on_start: Callable[[], None] = lambda: None  # a process of a pod was started
    on_exit: Callable[[], None] = lambda: None  # one ended

    def started(self, process: ContainerProcess) -> None:
        """Keeps account of a process until it ends."""
        self.processes.add(process)
        process.exited.add_done_callback(lambda _: self._ended(process))
        self.on_start()

    def environ(self, pod_name: str, home: Path, dies: tuple[int, ...]) -> dict[str, str]:
        """The variables of every process; nothing is inherited but the mark of the cluster."""
        settings = self.settings
        environ = {
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(home),
            "HOSTNAME": pod_name,
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            "KUBERNETES_SERVICE_HOST": settings.api_host,
            "KUBERNETES_SERVICE_PORT": settings.api_port,
            names.ENV_SHM_DIR: str(settings.shm_dir),
            POD_MARKER: str(settings.state_dir),
        }
        if settings.models_dir:
            environ[names.ENV_MODELS_DIR] = str(settings.models_dir)
        if cluster := os.environ.get(MARKER):
            environ[MARKER] = cluster
        if dies:  # many such processes share the machine's cores, each with one die's worth of work
            environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
            environ[names.ENV_DIES] = ",".join(str(die) for die in dies)
        return environ

    def _ended(self, process: ContainerProcess) -> None:
        self.processes.discard(process)
        self.on_exit()
