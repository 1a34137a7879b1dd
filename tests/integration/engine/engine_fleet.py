"""Instances of real processes, and an orchestrator that does for them what the operator does in a cluster."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from flowserve.wire import (
    DispatchReply,
    DispatchRequest,
    EngineConfig,
    EngineStatus,
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

TOKEN = "a-control-token"
MODEL = Path(__file__).parents[3] / "examples/models/tiny-deepseek-v3"
PATIENCE = 30.0
LIMITS = Limits(
    max_context_tokens=512,
    max_batch=8,
    prefill_chunk_tokens=32,
    kv_blocks=128,
    kv_block_tokens=16,
    max_ranks=4,
    collective_timeout_seconds=5.0,
)
GREEDY = Sampling(temperature=0)
T = TypeVar("T")


class Refusal(Exception):
    """An answer that is not 2xx."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(f"{status}: {body}")
        self.status = status
        self.body = body


async def until(probe: Callable[[], Awaitable[T | None]], what: str, patience: float = PATIENCE) -> T:
    """Asks until there is an answer."""
    deadline = time.monotonic() + patience
    while (answer := await probe()) is None:
        assert time.monotonic() < deadline, f"not within {patience} s: {what}"
        await asyncio.sleep(0.02)
    return answer


def own_host() -> str:
    """An address of this machine that nobody else is likely to use, so that ports can be what they are in pods."""
    return f"127.{random.randint(64, 254)}.{random.randint(0, 254)}.{random.randint(1, 254)}"


@dataclass
class Program:
    """A process under test; its configuration names its ports."""

    config: EngineConfig | ShellConfig
    process: asyncio.subprocess.Process
    log: Path

    @property
    def control(self) -> str:
        return f"http://{self.config.host}:{self.config.control_port}"

    async def kill(self) -> None:
        """As the kernel would: with no chance to clean up."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def stop(self) -> None:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(self.process.wait(), 10)


async def start(
    module: str, config: WireModel, directory: Path, **environment: str
) -> tuple[asyncio.subprocess.Process, Path]:
    log = directory / f"{module}-{time.monotonic_ns()}.log"
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module),
            env={
                **os.environ,
                "XDEEPSERVE_CONFIG": config.model_dump_json(),
                "XDEEPSERVE_CONTROL_TOKEN": TOKEN,
                "XCCL_SHM_DIR": str(directory / "shm"),
                **environment,
            },
            stdout=file,
            stderr=asyncio.subprocess.STDOUT,
        )
    return process, log


@dataclass
class Instance:
    """A gang of engines and their TE-shell. ``epoch`` is the last that was sent."""

    fleet: Fleet
    name: str
    role: Role
    limits: Limits
    apart: bool = False  # every rank is on a host of its own, as far as memory goes
    engines: list[Program] = field(default_factory=list)
    shell: Program | None = None
    epoch: int = 0

    async def launch(self, rank: int) -> Program:
        """Starts a rank, in the place of the one before, if there was one."""
        config = EngineConfig(
            name=f"{self.name}-dp{rank}",
            instance=self.name,
            role=self.role,
            dp_rank=rank,
            model_name="tiny",
            model_uri=MODEL.as_uri(),
            limits=self.limits,
            host=own_host(),
        )
        own = {"XCCL_SHM_DIR": str(self.fleet.directory / f"shm-{self.name}-{rank}")} if self.apart else {}
        program = Program(config, *await start("flowserve.engine", config, self.fleet.directory, **own))
        self.engines[rank:] = [program, *self.engines[rank + 1 :]]
        return program

    async def launch_shell(self) -> None:
        config = ShellConfig(instance=self.name, role=self.role, host=own_host(), heartbeat_seconds=0.2)
        self.shell = Program(config, *await start("flowserve.shell", config, self.fleet.directory))

    async def status(self) -> ShellStatus | None:
        assert self.shell is not None
        return await self.fleet.ask(self.shell, "GET", "/v1/status", None, ShellStatus)

    async def engine_status(self, rank: int) -> EngineStatus:
        status = await self.fleet.ask(self.engines[rank], "GET", "/v1/status", None, EngineStatus)
        assert status is not None
        return status

    async def heard(self) -> dict[int, EngineStatus]:
        """Sends the roster and waits until all of it has been heard, as the process that it now is."""
        entries = tuple(
            RosterEntry(
                rank=rank, host=each.config.host, api_port=each.config.api_port, control_port=each.config.control_port
            )
            for rank, each in enumerate(self.engines)
            if isinstance(each.config, EngineConfig)
        )
        assert self.shell is not None
        roster, shell = Roster(instance=self.name, entries=entries), self.shell
        await until(lambda: self.fleet.ask(shell, "PUT", "/v1/roster", roster, ShellStatus), "a shell takes its roster")

        async def all_heard() -> dict[int, EngineStatus] | None:
            status = await self.status()
            if status is None or not all(report.status and report.status.fabric_uri for report in status.ranks):
                return None
            return {report.rank: report.status for report in status.ranks if report.status}

        return await until(all_heard, f"all of {self.name} heard")

    async def form(self) -> Membership:
        """Makes the engines that run now the members of a new epoch, and waits until they serve."""
        statuses = await self.heard()
        self.epoch += 1
        members = tuple(
            Member(
                rank=rank,
                host=each.config.host,
                api_port=each.config.api_port,
                control_port=each.config.control_port,
                doorbell_port=each.config.doorbell_port,
                incarnation=statuses[rank].incarnation,
                fabric_uri=statuses[rank].fabric_uri,
            )
            for rank, each in enumerate(self.engines)
            if isinstance(each.config, EngineConfig)
        )
        membership = Membership(instance=self.name, epoch=self.epoch, members=members)
        assert self.shell is not None
        await self.fleet.ask(self.shell, "PUT", "/v1/membership", membership, ShellStatus)

        async def serving() -> bool | None:
            status = await self.status()
            return True if status and status.ready and status.epoch == self.epoch else None

        await until(serving, f"{self.name} serves in epoch {self.epoch}")
        return membership

    async def dispatch(self) -> DispatchReply:
        assert self.shell is not None
        request = DispatchRequest(request_id="r", tokens=1)
        reply = await self.fleet.ask(self.shell, "POST", "/v1/dispatch", request, DispatchReply)
        assert reply is not None
        return reply


class Fleet:
    """All instances of a test, and a client that acts as operator and frontend."""

    def __init__(self, directory: Path, session: aiohttp.ClientSession) -> None:
        self.directory = directory
        self.session = session
        self.instances: list[Instance] = []

    async def instance(
        self, name: str, role: Role, ranks: int, limits: Limits = LIMITS, *, apart: bool = False
    ) -> Instance:
        """Starts an instance and makes it serve."""
        instance = Instance(self, name, role, limits, apart)
        self.instances.append(instance)
        await instance.launch_shell()
        for rank in range(ranks):
            await instance.launch(rank)
        await instance.form()
        return instance

    async def ask(
        self, program: Program, method: str, path: str, body: WireModel | None, kind: type[WireModel] | None
    ) -> Any:
        """The answer, or None if nobody is there. Raises Refusal."""
        data = body.model_dump_json() if body else None
        try:
            async with self.session.request(method, program.control + path, data=data) as response:
                text = await response.read()
        except (aiohttp.ClientError, TimeoutError):
            return None
        if response.status >= 300:
            raise Refusal(response.status, json.loads(text))
        return kind.model_validate_json(text) if kind else None

    async def prefill(
        self, instance: Instance, prompt: tuple[int, ...], max_tokens: int, **more: Any
    ) -> GenerateRequest:
        """What to send to a decode engine."""
        request = GenerateRequest(request_id="r", prompt=prompt, max_tokens=max_tokens, **{"sampling": GREEDY, **more})
        where = await instance.dispatch()
        url = f"http://{where.host}:{where.api_port}/v1/prefill"
        async with self.session.post(url, data=request.model_dump_json()) as response:
            text = await response.read()
        if response.status != 200:
            raise Refusal(response.status, json.loads(text))
        reply = PrefillReply.model_validate_json(text)
        return request.model_copy(update={"ticket": reply.ticket, "first_token": reply.first_token})

    async def generate(self, where: DispatchReply, request: GenerateRequest) -> AsyncIterator[TokenEvent]:
        """The events of a stream, checked to be contiguous."""
        url = f"http://{where.host}:{where.api_port}/v1/generate"
        async with self.session.post(url, data=request.model_dump_json()) as response:
            if response.status != 200:
                raise Refusal(response.status, json.loads(await response.read()))
            expected = 0
            async for line in response.content:
                event = TokenEvent.model_validate_json(line)
                assert event.error is not None or event.index == expected
                expected += len(event.tokens)
                yield event

    async def answer(self, where: DispatchReply, request: GenerateRequest) -> list[int]:
        """All tokens of a stream that must end well."""
        tokens: list[int] = []
        async for event in self.generate(where, request):
            assert event.error is None, event.error
            tokens += event.tokens
        assert event.finish_reason is not None
        return tokens

    def logs(self) -> str:
        """What all processes have said."""
        return "".join(f"--- {path.name}\n{path.read_text()}" for path in sorted(self.directory.glob("*.log")))

    async def stop(self) -> None:
        programs = [each for instance in self.instances for each in (*instance.engines, instance.shell) if each]
        async with AsyncExitStack() as stack:
            for program in programs:
                stack.push_async_callback(program.kill)
            await asyncio.gather(*(program.stop() for program in programs))
