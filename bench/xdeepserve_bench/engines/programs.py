"""One process of a fleet. Each has an address of its own, so that ports are what they are in pods."""

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from flowserve.process import CONFIG_VARIABLE, TOKEN_VARIABLE
from flowserve.wire import EngineConfig, FrontendConfig, ShellConfig

PATIENCE = 30.0  # seconds
STOP_SECONDS = 10.0
POLL_SECONDS = 0.02
C = TypeVar("C", EngineConfig, ShellConfig, FrontendConfig)
T = TypeVar("T")


class NotServing(Exception):
    """The processes did not do what they must; their logs say why."""


class Refusal(NotServing):
    """An answer that is not 2xx."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(f"{status}: {body}")
        self.status, self.body = status, body


@dataclass
class Program(Generic[C]):
    """A process that was started; its configuration names its ports."""

    config: C
    process: asyncio.subprocess.Process
    log: Path

    @property
    def control(self) -> str:
        """URL of its control port."""
        return f"http://{self.config.host}:{self.config.control_port}"

    def check(self) -> None:
        """Raises NotServing once it has ended."""
        if self.process.returncode is not None:
            raise NotServing(f"a process ended with status {self.process.returncode}; see {self.log}")

    async def kill(self) -> None:
        """As the kernel would: with no chance to clean up."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def stop(self) -> None:
        """Ends it as a kubelet does. Raises TimeoutError when it does not end in time."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(self.process.wait(), STOP_SECONDS)


async def start(module: str, config: C, directory: Path, *, token: str, memory: Path, **environment: str) -> Program[C]:
    """Starts a module with its configuration; its log lies in ``directory``, its shared memory in ``memory``."""
    log = directory / f"{module}-{time.monotonic_ns()}.log"
    given = {
        CONFIG_VARIABLE: config.model_dump_json(),
        TOKEN_VARIABLE: token,
        "XCCL_SHM_DIR": str(memory),
        "OPENBLAS_NUM_THREADS": "1",
    }
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", module),
            env={**os.environ, **given, **environment},
            stdout=file,
            stderr=asyncio.subprocess.STDOUT,
        )
    return Program(config, process, log)


async def until(probe: Callable[[], Awaitable[T | None]], what: str, patience: float = PATIENCE) -> T:
    """Asks until there is an answer. Raises NotServing."""
    deadline = time.monotonic() + patience
    while (answer := await probe()) is None:
        if time.monotonic() > deadline:
            raise NotServing(f"not within {patience:g} s: {what}")
        await asyncio.sleep(POLL_SECONDS)
    return answer


def own_host() -> str:
    """An address of this machine that nobody else is likely to use."""
    return f"127.{random.randint(64, 254)}.{random.randint(0, 254)}.{random.randint(1, 254)}"
