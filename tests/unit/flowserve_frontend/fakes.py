"""Instances that speak the wire protocol and answer from a script, and a frontend in front of them."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from flowserve.control import application, document, reply
from flowserve.frontend.server import Frontend, serving
from flowserve.frontend.upstream import Timeouts
from flowserve.text import ChatTemplate
from flowserve.wire import (
    DispatchReply,
    DispatchRequest,
    FrontendConfig,
    GenerateRequest,
    Logprobs,
    PrefillReply,
    Refusal,
    Role,
    Routes,
    Target,
    TokenEvent,
    TransferTicket,
)

HOST = "127.0.0.1"
TOKEN = "control-token"
MODEL = "tiny"
CONFIG = FrontendConfig(
    deployment="chat", model_name=MODEL, model_uri="file:///models/tiny", max_context_tokens=256, max_body_bytes=4096
)
DIE = "die"  # a step of a script: the connection breaks
Step = TokenEvent | bytes | asyncio.Event | str


class ByteTokenizer:
    """One token a byte."""

    vocab_size = 256

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def label(self, token: int) -> str:
        return f"<{token}>"

    def token_bytes(self, token: int) -> bytes:
        return self.label(token).encode()


def answer(*tokens: int, finish: str = "stop") -> list[Step]:
    """A script that sends each token in a line of its own, its text being ``<token>``."""
    events: list[Step] = [TokenEvent(index=i, tokens=(token,), text=f"<{token}>") for i, token in enumerate(tokens)]
    return [*events, TokenEvent.model_validate({"index": len(tokens), "finish_reason": finish})]


@dataclass
class FakeInstance:
    """Shell and engine of one instance on one port. ``refusals`` answer its next calls, whatever they are."""

    name: str
    role: Role
    port: int = 0
    script: list[Step] = field(default_factory=lambda: answer(11, 12, 13))
    scripts: deque[list[Step]] = field(default_factory=deque)  # for the next calls, before ``script``
    refusals: deque[tuple[int, Refusal]] = field(default_factory=deque)
    dispatches: list[DispatchRequest] = field(default_factory=list)
    requests: list[GenerateRequest] = field(default_factory=list)
    dropped: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    reached: asyncio.Event = field(default_factory=asyncio.Event)  # a prefill or a script's pause is reached
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    hold_prefill: asyncio.Event | None = None

    def target(self, revision: str = "0") -> Target:
        return Target(instance=self.name, role=self.role, shell_host=HOST, shell_port=self.port, revision=revision)

    async def dispatch(self, request: web.Request) -> web.StreamResponse:
        self.dispatches.append(await document(request, DispatchRequest))
        if self.refusals:
            status, refusal = self.refusals.popleft()
            return reply(refusal, status)
        return reply(DispatchReply(host=HOST, api_port=self.port, rank=0, incarnation="one"))

    async def prefill(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(await document(request, GenerateRequest))
        if self.hold_prefill:
            await self._pause(self.hold_prefill)
        ticket = TransferTicket(
            id=f"ticket-{len(self.requests)}",
            host=HOST,
            control_port=self.port,
            incarnation="one",
            fabric_uri="shm:///nowhere",
            tokens=len(self.requests[-1].prompt),
        )
        first_logprobs = None if self.requests[-1].logprobs is None else Logprobs(chosen=-0.5)
        return reply(PrefillReply(first_token=11, first_logprobs=first_logprobs, cached_tokens=2, ticket=ticket))

    async def generate(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(await document(request, GenerateRequest))
        response = web.StreamResponse()
        await response.prepare(request)
        for step in self.scripts.popleft() if self.scripts else self.script:
            if isinstance(step, TokenEvent):
                await response.write(step.model_dump_json().encode() + b"\n")
            elif isinstance(step, bytes):
                await response.write(step)
            elif isinstance(step, asyncio.Event):
                await self._pause(step)
            else:
                assert request.transport is not None
                request.transport.abort()
        return response

    async def drop(self, request: web.Request) -> web.StreamResponse:
        self.dropped.put_nowait(request.match_info["id"])
        return web.Response(status=204)

    async def _pause(self, until: asyncio.Event) -> None:
        self.reached.set()
        try:
            await until.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    @asynccontextmanager
    async def running(self) -> AsyncIterator["FakeInstance"]:
        app = application(TOKEN, lambda: True)
        app.router.add_post("/v1/dispatch", self.dispatch)
        app.router.add_post("/v1/prefill", self.prefill)
        app.router.add_post("/v1/generate", self.generate)
        app.router.add_delete("/v1/transfers/{id}", self.drop)
        async with listening_anywhere(app) as self.port:
            yield self


@asynccontextmanager
async def listening_anywhere(app: web.Application) -> AsyncIterator[int]:
    """Serves an aiohttp application on a free port, which it gives."""
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@dataclass
class World:
    """A running frontend and the instances that it routes to."""

    frontend: Frontend
    url: str
    control_url: str
    prefill: FakeInstance
    decode: FakeInstance
    epoch: int = 1

    def route_to(self, *targets: Target) -> None:
        self.epoch += 1
        self.frontend.router.replace(Routes(deployment="chat", epoch=self.epoch, targets=targets))


@asynccontextmanager
async def running_world(
    api_keys: Sequence[str] = (), timeouts: Timeouts | None = None, template: bool = True
) -> AsyncIterator[World]:
    """One prefill and one decode instance behind a frontend, routes in force."""
    async with AsyncExitStack() as stack:
        prefill = await stack.enter_async_context(FakeInstance("p0", "Prefill").running())
        decode = await stack.enter_async_context(FakeInstance("d0", "Decode").running())
        roles = ChatTemplate({"user": "U:{content}\n", "assistant": "A:{content}\n"}) if template else None
        frontend = Frontend(CONFIG, TOKEN, ByteTokenizer(), roles, api_keys, timeouts)
        stack.push_async_callback(frontend.upstream.aclose)
        control_port = await stack.enter_async_context(listening_anywhere(frontend.admin))
        port = await stack.enter_async_context(serving(frontend.api, HOST, 0))
        world = World(frontend, f"http://{HOST}:{port}", f"http://{HOST}:{control_port}", prefill, decode)
        world.route_to(prefill.target(), decode.target())
        yield world
