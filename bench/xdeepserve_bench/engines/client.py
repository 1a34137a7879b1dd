"""What operator and frontend ask of engines and TE-shells, over their HTTP routes (see flowserve.wire)."""

import json
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TypeVar

import aiohttp

from flowserve.wire import (
    DispatchReply,
    EngineConfig,
    GenerateRequest,
    PrefillReply,
    ShellConfig,
    TokenEvent,
    WireModel,
)
from xdeepserve_bench.engines.programs import NotServing, Program, Refusal

M = TypeVar("M", bound=WireModel)
Asked = Program[EngineConfig] | Program[ShellConfig]
Engine = EngineConfig | DispatchReply  # who names an engine's API port


@dataclass
class Stream:
    """What a request got: tokens, and when each came, in s on the monotonic clock."""

    tokens: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


class Client:
    """``session`` carries the control token."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    async def call(self, program: Asked, method: str, path: str, body: WireModel | None = None) -> bytes:
        """An answer of a control port. Raises Refusal, and aiohttp.ClientError where nobody is there."""
        data = body.model_dump_json() if body is not None else None
        async with self.session.request(method, program.control + path, data=data) as response:
            return await _accepted(response)

    async def ask(self, program: Asked, method: str, path: str, body: WireModel | None, kind: type[M]) -> M | None:
        """The same, read as ``kind``; None where nobody is there."""
        try:
            return kind.model_validate_json(await self.call(program, method, path, body))
        except (aiohttp.ClientError, TimeoutError):
            return None

    async def figures(self, program: Asked) -> dict[str, float]:
        """What the metrics of an engine or TE-shell say, by name; of those with several labels, the last."""
        page = (await self.call(program, "GET", "/metrics")).decode()
        return {name: float(value) for name, value in re.findall(r"^(\S+?)\{.*\} (\S+)$", page, re.MULTILINE)}

    async def prefilled(self, where: Engine, request: GenerateRequest) -> GenerateRequest:
        """The request with a ticket for its KV, which waits on a prefill engine. Raises Refusal."""
        url = f"http://{where.host}:{where.api_port}/v1/prefill"
        async with self.session.post(url, data=request.model_dump_json()) as response:
            reply = PrefillReply.model_validate_json(await _accepted(response))
        return request.model_copy(update={"ticket": reply.ticket, "first_token": reply.first_token})

    async def generate(self, where: Engine, request: GenerateRequest) -> AsyncIterator[TokenEvent]:
        """The events of a decode engine, checked to be contiguous. Raises Refusal, NotServing."""
        url = f"http://{where.host}:{where.api_port}/v1/generate"
        async with self.session.post(url, data=request.model_dump_json()) as response:
            if response.status >= 300:
                await _accepted(response)
            expected = 0
            async for line in response.content:
                event = TokenEvent.model_validate_json(line)
                if event.error is None and event.index != expected:
                    raise NotServing(f"token {event.index} came where {expected} was due")
                expected += len(event.tokens)
                yield event

    async def stream(self, where: Engine, request: GenerateRequest) -> Stream:
        """A whole answer, which must end well. Raises Refusal, NotServing."""
        stream, finished = Stream(), False
        async for event in self.generate(where, request):
            if event.error is not None:
                raise NotServing(event.error)
            stream.tokens += event.tokens
            stream.times += [time.monotonic()] * len(event.tokens)
            finished = event.finish_reason is not None
        if not finished:
            raise NotServing(f"a stream broke off after {len(stream.tokens)} tokens")
        return stream

    async def answer(self, where: Engine, request: GenerateRequest) -> list[int]:
        """The tokens of a whole answer. Raises Refusal, NotServing."""
        return (await self.stream(where, request)).tokens


async def _accepted(response: aiohttp.ClientResponse) -> bytes:
    answer = await response.read()
    if response.status >= 300:
        raise Refusal(response.status, json.loads(answer))
    return answer
