"""Reading a component's log, and following it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from xdeepserve_cluster.controlplane.cluster import get, layout_of
from xdeepserve_cluster.controlplane.components import COMPONENTS
from xdeepserve_cluster.errors import ClusterError

POLL_S = 0.2


def log_file(name: str, component: str, *, root: Path | None = None) -> Path:
    """The log of a cluster's component. Raises ClusterError if there is no such cluster, component or log."""
    get(name, root)
    if component not in COMPONENTS:
        raise ClusterError(f"there is no component {component!r}: choose one of {', '.join(COMPONENTS)}")
    path = layout_of(name, root).log(component)
    if not path.exists():
        raise ClusterError(f"{component} has no log: it was never started in this cluster")
    return path


def read_log(path: Path, *, follow: bool = False, sleep: Callable[[float], None] = time.sleep) -> Iterator[str]:
    """The log's text in pieces; with `follow`, also what is appended, until the file is removed."""
    with path.open(errors="replace") as file:
        while True:
            while piece := file.read(65536):
                yield piece
            if not follow or not path.exists():
                return
            sleep(POLL_S)
