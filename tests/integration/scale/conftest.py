"""Hollow servers, the stand-in for engines, and operators as processes that can be killed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from xdeepserve_bench.control_plane.hollow import Hollow, hollow_cluster
from xdeepserve_cluster.progress import Progress


@pytest.fixture
async def hollow(tmp_path: Path) -> AsyncIterator[Hollow]:
    """A small SuperPod, no operator yet."""
    async with hollow_cluster(tmp_path, Progress(quiet=True)) as running:
        await running.add_superpod("pod-0", servers=2)
        yield running
