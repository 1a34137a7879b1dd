"""A directory for the memory of several processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from xccl import sweep


@pytest.fixture
def directory() -> Iterator[Path]:
    path = Path(f"/dev/shm/xccl-test-{os.getpid()}")
    path.mkdir()
    yield path
    sweep(path)
    for ready in path.glob("ready-*"):
        ready.unlink()
    path.rmdir()
