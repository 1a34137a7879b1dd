"""A frontend process in front of real engines and TE-shells."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from xdeepserve_bench.engines.instance import Instance

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))  # the orchestrator of the engine's own tests

from engine_fleet import tiny_fleet
from frontend_process import FrontendProcess


@asynccontextmanager
async def running(directory: Path, ranks: int) -> AsyncIterator[tuple[FrontendProcess, Instance, Instance]]:
    """A frontend that routes to a prefill instance and a decode instance of ``ranks`` ranks."""
    async with tiny_fleet(directory) as fleet:
        frontend = FrontendProcess(directory, fleet.session)
        try:
            _, prefill, decode = await asyncio.gather(
                frontend.launch(), fleet.instance("p", "Prefill", 1), fleet.instance("d", "Decode", ranks)
            )
            await frontend.route_to(prefill, decode)
            yield frontend, prefill, decode
        finally:
            await frontend.kill()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[tuple[FrontendProcess, Instance, Instance]]:
    """For tests that break nothing."""
    async with running(tmp_path_factory.mktemp("fleet"), 2) as everything:
        yield everything


@pytest_asyncio.fixture
async def breakable(tmp_path: Path) -> AsyncIterator[tuple[FrontendProcess, Instance, Instance]]:
    """For tests that break what they are given."""
    async with running(tmp_path, 2) as everything:
        yield everything
