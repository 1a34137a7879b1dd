"""A real Kubernetes control plane as plain processes of one user: no root, no containers."""

from xdeepserve_cluster.controlplane.bringup import up
from xdeepserve_cluster.controlplane.cluster import Cluster, get, specify
from xdeepserve_cluster.controlplane.health import ClusterStatus, ComponentStatus, status
from xdeepserve_cluster.controlplane.logs import log_file, read_log
from xdeepserve_cluster.controlplane.spec import ClusterSpec
from xdeepserve_cluster.controlplane.teardown import down

__all__ = [
    "Cluster",
    "ClusterSpec",
    "ClusterStatus",
    "ComponentStatus",
    "down",
    "get",
    "log_file",
    "read_log",
    "specify",
    "status",
    "up",
]
