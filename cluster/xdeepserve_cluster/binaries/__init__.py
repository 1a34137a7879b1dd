"""The commands that a cluster is made of: found on this machine, or built from the pinned Go modules."""

from xdeepserve_cluster.binaries.catalog import CLUSTER_TOOLS, TOOLS
from xdeepserve_cluster.binaries.find import find_or_build

__all__ = ["CLUSTER_TOOLS", "TOOLS", "find_or_build"]
