"""Sending an answer, watching the client meanwhile.

Nothing is sent before the first token is there: until then a failure is a plain HTTP error, which clients retry by
themselves. After it, a failure is an SSE event with an error document and the stream ends without ``[DONE]``, so no
client can take it for complete. A client that leaves, or does not read for a minute, cancels the work at once.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

import structlog
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from flowserve.frontend.errors import RequestError
from flowserve.frontend.job import Piece
from flowserve.frontend.shapes import Json, Shape

T = TypeVar("T")
READER_SECONDS = 60.0
HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}  # proxies shall pass events on at once

log = structlog.get_logger()


class ClientGone(Exception):
    """The client closed its connection before the answer's end."""


async def until_disconnected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``; raises ClientGone, with ``work`` cancelled and finished, if the client leaves first."""
    task = asyncio.create_task(work)
    watch = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        task.cancel()
        watch.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def lines(
    pieces: AsyncGenerator[Piece, None], shape: Shape, *, include_usage: bool
) -> AsyncGenerator[bytes, None]:
    """The stream's SSE lines. Raises RequestError as long as there was no line yet."""
    usage = {"usage": None} if include_usage else {}
    begun = False
    async with aclosing(pieces):
        try:
            async for piece in pieces:
                for chunk in shape.chunks(piece):
                    begun = True
                    yield _line({**chunk, **usage})
        except RequestError as error:
            if not begun:
                raise
            yield _line(error.document())
            return
    if include_usage:
        yield _line(shape.usage_chunk())
    yield b"data: [DONE]\n\n"


class EventStream(StreamingResponse):
    """A response that streams ``lines``; the status is decided by whether the first one comes."""

    def __init__(self, body: AsyncGenerator[bytes, None]) -> None:
        super().__init__(body, media_type="text/event-stream", headers=HEADERS)
        self._body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        async with aclosing(self._body) as body:
            try:
                await until_disconnected(receive, self._send(body, send))
            except (ClientGone, TimeoutError) as error:
                log.info("answer abandoned", reason=type(error).__name__)

    async def _send(self, body: AsyncIterator[bytes], send: Send) -> None:
        line = await anext(body)
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        while line:
            async with asyncio.timeout(READER_SECONDS):
                await send({"type": "http.response.body", "body": line, "more_body": True})
            line = await anext(body, b"")
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _line(document: Json) -> bytes:
    """One SSE event, in ASCII: many clients take U+2028 or U+0085 in the text for the end of the line."""
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"
