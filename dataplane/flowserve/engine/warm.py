"""A warm engine: a process that has imported everything before it is told which DP group it will be.

While it waits it listens on its control port, alive and not ready, and has the checkpoint read into its server's
memory: pages of a mapped file belong to the server, not to a process, so every engine that starts there finds them.
``PUT /v1/assignment`` brings the configuration of the group. The same one again is harmless; another one is refused,
for a process is one group all its life; so is one whose addresses, role, checkpoint or limits are others than those it
was started with, for its output process has them too. A process that is started again waits anew: who assigned it
hears that it is silent, and replaces it.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import structlog
from aiohttp import web

from flowserve import control
from flowserve.control import listening
from flowserve.epoch import Refused
from flowserve.source import model_directory
from flowserve.wire import EngineConfig

log = structlog.get_logger()
PREPARED = ("role", "model_name", "model_uri", "limits", "host", "api_port", "control_port", "doorbell_port")
READ_AHEAD_BYTES = 8 << 20


class Waiting:
    """What a warm engine was started with, and what it is to become."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._given: asyncio.Future[EngineConfig] = asyncio.get_running_loop().create_future()

    async def given(self) -> EngineConfig:
        """The configuration of its group, once there is one."""
        return await asyncio.shield(self._given)

    def take(self, wish: EngineConfig) -> None:
        """Becomes the group of ``wish``. Raises Refused."""
        for part in (*PREPARED, "fabric_port"):
            if getattr(wish, part) != getattr(self._config, part):
                raise Refused(f"this engine was started with another {part}; it cannot become {wish.name}")
        if wish.warm:
            raise Refused("an assignment must not be warm itself")
        if not self._given.done():
            self._given.set_result(wish)
        elif self._given.result() != wish:
            raise Refused(f"this engine is {self._given.result().name} already")


def application(token: str, waiting: Waiting) -> web.Application:
    """Its control port while it waits."""
    app = control.application(token, lambda: False)

    async def put(request: web.Request) -> web.Response:
        wish = await control.document(request, EngineConfig)
        waiting.take(wish)
        return control.reply(wish)

    app.router.add_put("/v1/assignment", put)
    return app


async def assignment(config: EngineConfig, token: str) -> EngineConfig:
    """Waits, and returns the configuration of the group that this process is from now on."""
    waiting = Waiting(config)
    reading = asyncio.create_task(asyncio.to_thread(read_ahead, model_directory(config.model_uri)))
    async with listening(application(token, waiting), config.host, config.control_port):
        log.info("warm", model=config.model_uri)
        try:
            return await waiting.given()
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await reading


def read_ahead(directory: Path) -> int:
    """Brings a checkpoint's tensors into the server's memory; the number of bytes. Raises OSError."""
    total = 0
    for path in sorted(directory.glob("*.safetensors")):
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            for offset in range(0, size, READ_AHEAD_BYTES):
                os.posix_fadvise(file.fileno(), offset, READ_AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
            total += size
    return total
