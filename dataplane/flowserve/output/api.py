"""The API port of an engine: ``/v1/prefill`` on a prefill engine, ``/v1/generate`` on a decode engine.

A request that ends before its first line is answered by a Refusal (400, or 503 if it may be tried again); afterwards
by a last TokenEvent. However a handler ends (the client is gone, a stop string was found, the answer is complete),
the engine is told that nobody waits any more.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from flowserve import control
from flowserve.output.link import Cancel, Failed, FromEngine, Link, Prefilled, Submit, Tokens
from flowserve.output.stream import Answer
from flowserve.text import Tokenizer
from flowserve.wire import EngineConfig, GenerateRequest, Refusal

Arrivals = asyncio.Queue[FromEngine]


class Api:
    """The requests of one output process."""

    def __init__(self, config: EngineConfig, token: str, link: Link, tokenizer: Tokenizer | None) -> None:
        self._config = config
        self._token = token
        self._link = link
        self._tokenizer = tokenizer
        self._keys = itertools.count(1)
        self._requests: dict[int, Arrivals] = {}

    def application(self) -> web.Application:
        """The routes of the engine's role."""
        body_bytes = 16 * self._config.limits.max_context_tokens + 65_536  # a token takes 9 bytes at most
        app = control.application(self._token, lambda: True, body_bytes)
        if self._tokenizer is None:
            app.router.add_post("/v1/prefill", self._prefill)
        else:
            app.router.add_post("/v1/generate", self._generate)
        return app

    async def run(self) -> None:
        """Hands out what the engine says, until the engine is gone; then all requests end."""
        async for message in self._link.messages():
            assert isinstance(message, FromEngine)
            if (arrivals := self._requests.get(message.key)) is not None:
                arrivals.put_nowait(message)
        for key, arrivals in self._requests.items():
            arrivals.put_nowait(Failed(key=key, error="the engine has ended", retryable=True))

    @contextmanager
    def _submitted(self, request: GenerateRequest) -> Iterator[Arrivals]:
        key, arrivals = next(self._keys), Arrivals()
        self._requests[key] = arrivals
        self._link.send(Submit(key=key, request=request))
        try:
            yield arrivals
        finally:
            del self._requests[key]
            self._link.send(Cancel(key=key))

    async def _prefill(self, request: web.Request) -> web.Response:
        with self._submitted(await control.document(request, GenerateRequest)) as arrivals:
            message = await arrivals.get()
        if isinstance(message, Prefilled):
            return control.reply(message.reply)
        assert isinstance(message, Failed)
        return refuse(message)

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        assert self._tokenizer is not None
        wish = await control.document(request, GenerateRequest)
        answer = Answer(self._tokenizer, wish.stop)
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        with self._submitted(wish) as arrivals:
            while True:
                message = await arrivals.get()
                if isinstance(message, Failed) and not response.prepared:
                    return refuse(message)
                assert isinstance(message, Failed | Tokens)
                event = answer.event(message)
                if not response.prepared:
                    await response.prepare(request)
                await response.write(event.model_dump_json(exclude_defaults=True).encode() + b"\n")
                if event.finish_reason or event.error:
                    return response


def refuse(message: Failed) -> web.Response:
    """The answer to a request that ended before it produced anything."""
    return control.reply(
        Refusal(error=message.error[:1024], retryable=message.retryable), 503 if message.retryable else 400
    )
