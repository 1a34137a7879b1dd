"""A directory for the memory of several processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from xccl_tcp_world import hosts

from xccl import Endpoint, sweep


@pytest.fixture
def directory() -> Iterator[Path]:
    path = Path(f"/dev/shm/xccl-test-{os.getpid()}")
    path.mkdir()
    yield path
    sweep(path)
    for ready in path.glob("ready-*"):
        ready.unlink()
    path.rmdir()


@pytest.fixture
def pair() -> Iterator[list[Endpoint]]:
    """Two endpoints that see nothing of each other's files."""
    with hosts(2) as made:
        yield made
