"""A frontend as a process of its own, and what an operator does for it."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import aiohttp
from engine_fleet import MODEL, start

from flowserve.wire import FrontendConfig, FrontendStatus, Routes, Target
from xdeepserve_bench.engines.instance import Instance
from xdeepserve_bench.engines.programs import own_host, until

NAME = "tiny"


class FrontendProcess:
    """``session`` carries the control token; ``context`` is the longest that the engines take, in tokens."""

    def __init__(self, directory: Path, session: aiohttp.ClientSession, context: int) -> None:
        self._directory = directory
        self._session = session
        self.process: asyncio.subprocess.Process | None = None
        self.log = Path()
        self._epoch = 0
        self._config = FrontendConfig(
            deployment="chat",
            model_name=NAME,
            model_uri=MODEL.as_uri(),
            max_context_tokens=context,
            host=own_host(),
        )
        self.url = f"http://{self._config.host}:{self._config.api_port}"
        self.control_url = f"http://{self._config.host}:{self._config.control_port}"

    async def launch(self) -> None:
        """Starts the process and waits until it listens."""
        program = await start("flowserve.frontend", self._config, self._directory)
        self.process, self.log = program.process, program.log

        async def healthy() -> bool | None:
            return True if await self.http_status("/health") == 200 else None

        await until(healthy, "the frontend listens")

    async def http_status(self, path: str) -> int | None:
        """Of a GET on the API port; None if nobody is there."""
        try:
            async with self._session.get(self.url + path) as response:
                return response.status
        except aiohttp.ClientError:
            return None

    async def status(self) -> FrontendStatus:
        async with self._session.get(f"{self.control_url}/v1/status") as response:
            return FrontendStatus.model_validate_json(await response.read())

    async def route_to(self, *instances: Instance) -> None:
        """Makes these instances its routes, under a new epoch."""
        self._epoch += 1
        targets = []
        for each in instances:
            shell = each.shell.config
            target = Target(instance=each.name, role=each.role, shell_host=shell.host, shell_port=shell.control_port)
            targets.append(target)
        routes = Routes(deployment="chat", epoch=self._epoch, targets=tuple(targets))
        async with self._session.put(f"{self.control_url}/v1/routes", data=routes.model_dump_json()) as response:
            assert response.status == 200, await response.text()

    def terminate(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
