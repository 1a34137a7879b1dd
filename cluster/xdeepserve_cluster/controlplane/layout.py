"""Where the files of a cluster are. Everything is below one directory, except shared memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

# In the environment of every process of a cluster, its pods' included, with its directory as the value.
MARKER = "XDEEPSERVE_CLUSTER_DIRECTORY"


@dataclass(frozen=True)
class Layout:
    """The paths of the cluster `name` below `root`."""

    root: Path
    name: str

    @property
    def directory(self) -> Path:
        return self.root / self.name

    @property
    def lock(self) -> Path:
        """Held by whoever changes the cluster."""
        return self.directory / "lock"

    @property
    def state_file(self) -> Path:
        return self.directory / "cluster.json"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's; the user's own kubeconfig is never written."""
        return self.directory / "kubeconfig"

    @property
    def pki(self) -> Path:
        return self.directory / "pki"

    @property
    def kubeconfigs(self) -> Path:
        """One for each component that talks to the API server."""
        return self.directory / "kubeconfigs"

    @property
    def etcd_data(self) -> Path:
        return self.directory / "etcd"

    @property
    def tools(self) -> Path:
        """Links to kubectl and helm, to put on a PATH."""
        return self.directory / "bin"

    @property
    def agent(self) -> Path:
        return self.directory / "agent"

    @property
    def agent_ready(self) -> Path:
        """Written by the agent when all its nodes are registered."""
        return self.directory / "agent.ready"

    @property
    def shared_memory(self) -> Path:
        """Where the pods keep their segments. The suffix keeps clusters of one name and two roots apart."""
        suffix = hashlib.sha256(str(self.directory).encode()).hexdigest()[:8]
        return Path("/dev/shm") / f"xds-{self.name}-{suffix}"

    def log(self, component: str) -> Path:
        return self.directory / "logs" / f"{component}.log"

    def certificate(self, name: str) -> Path:
        return self.pki / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.pki / f"{name}.key"
