"""``xdeepserve bench start-up``: how long an engine takes until it can join an instance, by how it starts.

A prefill engine as a process of this machine, from its start (or, for one that waits, from its assignment) to the state
Waiting: imported, listening, checkpoint loaded. What differs is where the weights are: on the disk (the checkpoint's
pages are dropped before), in the server's memory, or in an engine that runs, from which they are copied over XCCL. On
one machine that engine's memory is this machine's; the copy through XCCL's ring is what is paid here, not a network.
The peer is the cold start from disk of the same run.
"""

import asyncio
import os
import secrets
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp

from flowserve.engine.warm import read_ahead
from flowserve.wire import Donor, EngineConfig, EngineStatus, Limits
from xdeepserve_bench.engines.programs import own_host, start
from xdeepserve_bench.model_checkpoint import make
from xdeepserve_bench.report import Measure, Report
from xdeepserve_demo.assets import models

RUNS = 5
COLD = "cold start, checkpoint on disk"
SECONDS = 120.0
POLL_SECONDS = 0.005
TOKEN = secrets.token_hex(16)


@dataclass
class Place:
    """Where engines of one checkpoint run, one address each."""

    model: Path
    shm: Path
    http: aiohttp.ClientSession
    started: int = 0

    def config(self, *, warm: bool = False) -> EngineConfig:
        """Of the next engine."""
        self.started += 1
        return EngineConfig(
            name=f"bench-{self.started}",
            instance="bench",
            role="Prefill",
            dp_rank=0,
            model_name="bench",
            model_uri=self.model.as_uri(),
            limits=Limits(max_ranks=1),
            host=own_host(),
            warm=warm,
        )

    @asynccontextmanager
    async def engine(self, config: EngineConfig) -> AsyncIterator[float]:
        """The process; yields when it was started."""
        started = time.monotonic()
        program = await start("flowserve.engine", config, self.shm.parent, token=TOKEN, memory=self.shm)
        try:
            yield started
        finally:
            await program.stop()

    async def answers(self, config: EngineConfig, path: str) -> bytes:
        """Waits for a good answer."""
        async with asyncio.timeout(SECONDS):
            while True:
                try:
                    async with self.http.get(f"http://{config.host}:{config.control_port}{path}") as reply:
                        if reply.status == 200:
                            return await reply.read()
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(POLL_SECONDS)

    async def loaded(self, config: EngineConfig) -> None:
        """Waits until it can join."""
        state = ""
        while state != "Waiting":
            await asyncio.sleep(POLL_SECONDS)
            state = EngineStatus.model_validate_json(await self.answers(config, "/v1/status")).state

    async def warm(self, config: EngineConfig) -> None:
        """Waits until both of its processes listen."""
        await self.answers(config, "/health")
        async with asyncio.timeout(SECONDS):
            while True:
                try:
                    _, writer = await asyncio.open_connection(config.host, config.api_port)
                except OSError:
                    await asyncio.sleep(POLL_SECONDS)
                else:
                    writer.close()
                    return

    def forget(self) -> None:
        """Drops the checkpoint from the server's memory, as far as nobody has it mapped."""
        for path in self.model.glob("*.safetensors"):
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def run(*, quick: bool) -> Report:
    """Starts engines of a random checkpoint of 1.2 GB; with ``quick`` of the demo's small model, and fewer."""
    with TemporaryDirectory(prefix="xdeepserve-start-up-") as directory:
        root = Path(directory)
        model = models() / "tiny-deepseek-v3"
        if not quick:
            (root / "model").mkdir()
            model = make(root / "model")
            os.sync()  # pages that are not written yet cannot be dropped
        (root / "shm").mkdir()
        return asyncio.run(_measured(model, root / "shm", 2 if quick else RUNS))


async def _measured(model: Path, shm: Path, runs: int) -> Report:
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as http:
        place = Place(model, shm, http)
        cold = [await _cold(place, in_memory=False) for _ in range(runs)]
        found = {
            "cold start, checkpoint in memory": [await _cold(place, in_memory=True) for _ in range(runs)],
            "engine that waits, checkpoint on disk": [await _warm(place, in_memory=False) for _ in range(runs)],
            "engine that waits, checkpoint in memory": [await _warm(place, in_memory=True) for _ in range(runs)],
        }
        config = place.config()
        async with place.engine(config):
            await place.loaded(config)
            donor = Donor(host=config.host, control_port=config.control_port)
            copied = [await _warm(place, in_memory=False, donor=donor) for _ in range(runs)]
            found["engine that waits, weights of a running one over XCCL"] = copied
    base = statistics.median(cold)
    measures = [Measure(COLD, base, "s", runs)]
    measures += [Measure(name, statistics.median(times), "s", runs, COLD, base) for name, times in found.items()]
    return Report("start-up", measures)


async def _cold(place: Place, *, in_memory: bool) -> float:
    _prepare(place, in_memory=in_memory)
    config = place.config()
    async with place.engine(config) as started:
        await place.loaded(config)
        return time.monotonic() - started


async def _warm(place: Place, *, in_memory: bool, donor: Donor | None = None) -> float:
    config = place.config(warm=True)
    async with place.engine(config):
        await place.warm(config)
        _prepare(place, in_memory=in_memory)
        wish = config.model_copy(update={"warm": False, "donor": donor}).model_dump_json()
        started = time.monotonic()
        async with place.http.put(f"http://{config.host}:{config.control_port}/v1/assignment", data=wish) as reply:
            reply.raise_for_status()
        await place.loaded(config)
        return time.monotonic() - started


def _prepare(place: Place, *, in_memory: bool) -> None:
    if in_memory:
        read_ahead(place.model)
        for path in place.model.glob("*.safetensors"):
            path.read_bytes()  # the advice is carried out later; this has all of it there
    else:
        place.forget()
