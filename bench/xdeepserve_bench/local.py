"""A local cluster with the operator's charts to come, for one benchmark: gone at its end, with all its files."""

import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from xdeepserve_cluster.controlplane import ClusterSpec
from xdeepserve_cluster.progress import Progress
from xdeepserve_demo.assets import models
from xdeepserve_demo.session import Session, session


@asynccontextmanager
async def local(name: str, progress: Progress) -> AsyncIterator[Session]:
    """A session on it; ``name`` is told apart from other runs'."""
    spec = ClusterSpec(name=f"{name}-{int(time.time()) % 100000}", models=models())
    with tempfile.TemporaryDirectory(prefix="xdeepserve-bench-") as root:
        async with session(spec, progress, root=Path(root)) as current:
            yield current
