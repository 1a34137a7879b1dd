"""Ways to start: an engine that waits takes its assignment, and its weights from one that runs."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from engine_fleet import LIMITS, MODEL, TOKEN, start

from flowserve.wire import Donor, EngineConfig, EngineStatus
from xdeepserve_bench.engines.programs import own_host, until


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """The model's directory without its tensors."""
    return Path(shutil.copytree(MODEL, tmp_path / "bare", ignore=shutil.ignore_patterns("*.safetensors")))


def configured(name: str, model: Path, *, warm: bool) -> EngineConfig:
    return EngineConfig(
        name=name,
        instance="w",
        role="Prefill",
        dp_rank=0,
        model_name="tiny",
        model_uri=model.as_uri(),
        limits=LIMITS,
        host=own_host(),
        warm=warm,
    )


@asynccontextmanager
async def running(config: EngineConfig, directory: Path) -> AsyncIterator[str]:
    """An engine's process; the URL of its control port."""
    program = await start("flowserve.engine", config, directory)
    try:
        yield program.control
    finally:
        await program.stop()


async def got(http: aiohttp.ClientSession, url: str) -> bytes | None:
    try:
        async with http.get(url) as reply:
            return await reply.read() if reply.status == 200 else None
    except aiohttp.ClientError:
        return None


async def loaded(http: aiohttp.ClientSession, url: str) -> str | None:
    """The engine's name, once it could join."""
    answer = await got(http, f"{url}/v1/status")
    status = None if answer is None else EngineStatus.model_validate_json(answer)
    return status.name if status is not None and status.state == "Waiting" else None


async def test_a_waiting_engine_becomes_a_group_with_the_weights_of_another(tmp_path: Path, bare: Path) -> None:
    giving, waiting = configured("giver", MODEL, warm=False), configured("warm-0", bare, warm=True)
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as http,
        running(giving, tmp_path) as donor,
        running(waiting, tmp_path) as warm,
    ):
        await asyncio.gather(
            until(lambda: got(http, f"{warm}/health"), "the engine waits"),
            until(lambda: loaded(http, donor), "the donor has its weights"),
        )
        gift = Donor(host=giving.host, control_port=giving.control_port)
        wish = waiting.model_copy(update={"name": "w-0-dp0", "instance": "w-0", "warm": False, "donor": gift})
        async with http.put(f"{warm}/v1/assignment", data=wish.model_dump_json()) as reply:
            assert reply.status == 200, await reply.text()
        assert await until(lambda: loaded(http, warm), "it has them too") == "w-0-dp0"
    assert os.listdir(tmp_path / "shm") == []
