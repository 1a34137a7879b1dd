"""Real engines and TE-shells for ``bench eplb``, and a client that is operator and frontend to them at once."""

import asyncio
import os
import random
import secrets
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from flowserve.process import CONFIG_VARIABLE, TOKEN_VARIABLE
from flowserve.wire import (
    EngineConfig,
    GenerateRequest,
    Limits,
    Member,
    Membership,
    PrefillReply,
    Role,
    Roster,
    RosterEntry,
    Sampling,
    ShellConfig,
    ShellStatus,
    TokenEvent,
    WireModel,
)

PATIENCE = 120.0
T = TypeVar("T")
M = TypeVar("M", bound=WireModel)


class NotServing(Exception):
    """The engines did not do what they must; their logs say why."""


@dataclass
class Stream:
    """What a request got: tokens, and when each came."""

    tokens: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Instance:
    """Engines by rank, and their TE-shell."""

    name: str
    engines: tuple[EngineConfig, ...]
    shell: ShellConfig


class Fleet:
    """All processes of one run; their memory lies in ``shared``, their logs in ``directory``."""

    def __init__(
        self, directory: Path, shared: Path, checkpoint: Path, session: aiohttp.ClientSession, token: str
    ) -> None:
        self._directory, self._shared, self._checkpoint = directory, shared, checkpoint
        self._session, self._token = session, token
        self._processes: list[asyncio.subprocess.Process] = []

    async def instance(self, name: str, role: Role, ranks: int, limits: Limits) -> Instance:
        """Starts an instance and makes it serve."""
        engines = tuple(
            EngineConfig(
                name=f"{name}-{rank}",
                instance=name,
                role=role,
                dp_rank=rank,
                model_name="bench",
                model_uri=self._checkpoint.as_uri(),
                limits=limits,
                host=_host(),
            )
            for rank in range(ranks)
        )
        found = Instance(name, engines, ShellConfig(instance=name, role=role, host=_host(), heartbeat_seconds=0.2))
        for config in engines:
            await self._start("flowserve.engine", config)
        await self._start("flowserve.shell", found.shell)
        await self._form(found)
        return found

    async def call(self, config: EngineConfig | ShellConfig, method: str, path: str, body: WireModel | None) -> bytes:
        """An answer of a control port. Raises NotServing for a refusal, aiohttp.ClientError where nobody is there."""
        data = body.model_dump_json() if body is not None else None
        url = f"http://{config.host}:{config.control_port}{path}"
        async with self._session.request(method, url, data=data) as response:
            answer = await response.read()
        if response.status >= 300:
            raise NotServing(f"{method} {path}: {response.status} {answer.decode(errors='replace')[:300]}")
        return answer

    async def status(self, instance: Instance) -> ShellStatus | None:
        """What the instance's TE-shell says; None while nobody is there."""
        try:
            return ShellStatus.model_validate_json(await self.call(instance.shell, "GET", "/v1/status", None))
        except aiohttp.ClientError:
            return None

    async def prefill(self, instance: Instance, prompt: tuple[int, ...], tokens: int) -> GenerateRequest:
        """A request whose KV waits on the first engine of a prefill instance."""
        greedy = Sampling(temperature=0)
        request = GenerateRequest(
            request_id=secrets.token_hex(4), prompt=prompt, max_tokens=tokens, sampling=greedy, ignore_eos=True
        )
        config = instance.engines[0]
        url = f"http://{config.host}:{config.api_port}/v1/prefill"
        async with self._session.post(url, data=request.model_dump_json()) as response:
            reply = PrefillReply.model_validate_json(await response.read())
        return request.model_copy(update={"ticket": reply.ticket, "first_token": reply.first_token})

    async def generate(self, config: EngineConfig, request: GenerateRequest) -> Stream:
        """All tokens of a request on one decode engine. Raises NotServing."""
        stream = Stream()
        url = f"http://{config.host}:{config.api_port}/v1/generate"
        async with self._session.post(url, data=request.model_dump_json()) as response:
            async for line in response.content:
                event = TokenEvent.model_validate_json(line)
                if event.error is not None:
                    raise NotServing(event.error)
                stream.tokens += event.tokens
                stream.times += [time.monotonic()] * len(event.tokens)
        return stream

    async def until(self, probe: Callable[[], Awaitable[T | None]], what: str) -> T:
        """Asks until there is an answer. Raises NotServing."""
        deadline = time.monotonic() + PATIENCE
        while (answer := await probe()) is None:
            if time.monotonic() > deadline or any(each.returncode is not None for each in self._processes):
                raise NotServing(f"{what}: not within {PATIENCE:g} s, or a process has ended; see {self._directory}")
            await asyncio.sleep(0.05)
        return answer

    async def stop(self) -> None:
        """Ends all processes."""
        for process in self._processes:
            if process.returncode is None:
                process.terminate()
        for process in self._processes:
            try:
                await asyncio.wait_for(process.wait(), 10)
            except TimeoutError:
                process.kill()
                await process.wait()

    async def _start(self, module: str, config: WireModel) -> None:
        environment = {
            **os.environ,
            CONFIG_VARIABLE: config.model_dump_json(),
            TOKEN_VARIABLE: self._token,
            "XCCL_SHM_DIR": str(self._shared),
            "OPENBLAS_NUM_THREADS": "1",
        }
        with (self._directory / f"{module}-{len(self._processes)}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", module, env=environment, stdout=log, stderr=log
            )
        self._processes.append(process)

    async def _form(self, instance: Instance) -> None:
        entries = tuple(RosterEntry(rank=rank, host=each.host) for rank, each in enumerate(instance.engines))
        roster = Roster(instance=instance.name, entries=entries)

        async def heard() -> ShellStatus | None:
            try:
                await self.call(instance.shell, "PUT", "/v1/roster", roster)
            except aiohttp.ClientError:
                return None
            status = await self.status(instance)
            known = status is not None and all(one.status and one.status.state == "Waiting" for one in status.ranks)
            return status if known else None

        status = await self.until(heard, f"{instance.name} loads")
        members = tuple(
            Member(rank=one.rank, host=one.host, incarnation=one.status.incarnation, fabric_uri=one.status.fabric_uri)
            for one in status.ranks
            if one.status is not None
        )
        membership = Membership(instance=instance.name, epoch=1, members=members)
        await self.call(instance.shell, "PUT", "/v1/membership", membership)

        async def ready() -> bool | None:
            now = await self.status(instance)
            return True if now is not None and now.ready else None

        await self.until(ready, f"{instance.name} serves")


@asynccontextmanager
async def fleet(directory: Path, checkpoint: Path) -> AsyncIterator[Fleet]:
    """A fleet that is gone at the end, its memory too; logs lie in ``directory``.

    Memory that a disk stands behind would be written to it while tokens wait, so it is a folder of its own.
    """
    token = secrets.token_hex(16)
    headers: dict[str, Any] = {"Authorization": f"Bearer {token}"}
    async with AsyncExitStack() as stack:
        shared = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xdeepserve-bench-", dir="/dev/shm")))
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        session = await stack.enter_async_context(
            aiohttp.ClientSession(headers=headers, connector=connector, timeout=timeout)
        )
        found = Fleet(directory, shared, checkpoint, session, token)
        stack.push_async_callback(found.stop)
        yield found


def _host() -> str:
    """An address of this machine that nobody else is likely to use, so that ports are what they are in pods."""
    return f"127.{random.randint(64, 254)}.{random.randint(0, 254)}.{random.randint(1, 254)}"
