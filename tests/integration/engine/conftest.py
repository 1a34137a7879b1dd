"""Fleets of real engines and TE-shells."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
from engine_fleet import tiny_fleet

from xdeepserve_bench.engines.fleet import Fleet

GOLDEN = Path(__file__).parents[2] / "data/tiny-deepseek-v3/golden.npz"


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Fleet]:
    """A fleet that must leave no memory behind; pytest shows its logs if the test failed."""
    async with tiny_fleet(directory) as fleet:
        yield fleet
    print(fleet.logs())
    assert not [name for _, _, names in os.walk(directory / "shm") for name in names], "memory was left"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    """One prefill instance ``p`` and one decode instance ``d`` of two ranks, for tests that break nothing."""
    async with running(tmp_path_factory.mktemp("fleet")) as fleet:
        await fleet.instance("p", "Prefill", 1)
        await fleet.instance("d", "Decode", 2)
        yield fleet


@pytest_asyncio.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """An empty fleet, for tests that break what they start."""
    async with running(tmp_path) as fleet:
        yield fleet


@pytest.fixture(scope="session")
def golden() -> list[tuple[tuple[int, ...], list[int]]]:
    """Prompts, and what the reference implementation decodes greedily after them."""
    greedy = np.load(GOLDEN)["greedy"]
    return [(tuple(row[:16].tolist()), row[16:].tolist()) for row in greedy]
