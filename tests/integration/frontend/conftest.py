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

from flowserve.wire import Limits
from xdeepserve_bench.engines.instance import Instance

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))  # the orchestrator of the engine's own tests

from engine_fleet import LIMITS, tiny_fleet
from frontend_process import FrontendProcess

LONG = LIMITS.model_copy(update={"max_context_tokens": 1024})


@asynccontextmanager
async def running(directory: Path, limits: Limits) -> AsyncIterator[tuple[FrontendProcess, Instance, Instance]]:
    """A frontend that routes to a prefill instance, and a decode instance of two ranks."""
    async with tiny_fleet(directory, limits) as fleet:
        frontend = FrontendProcess(directory, fleet.session, limits.max_context_tokens)
        try:
            _, prefill, decode = await asyncio.gather(
                frontend.launch(), fleet.instance("p", "Prefill", 1), fleet.instance("d", "Decode", 2)
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
    async with running(tmp_path_factory.mktemp("fleet"), LIMITS) as everything:
        yield everything


@pytest_asyncio.fixture
async def breakable(tmp_path: Path) -> AsyncIterator[tuple[FrontendProcess, Instance, Instance]]:
    """For tests that break what they are given, while it is at something long."""
    async with running(tmp_path, LONG) as everything:
        yield everything
