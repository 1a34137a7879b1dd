"""What an engine and its output process say to each other: JSON documents with their length before them.

A ``key`` names one request on this link, from ``Submit`` until its last ``Tokens``, ``Prefilled`` or ``Failed``, or
until ``Cancel``. A frame above MAX_FRAME_BYTES is refused before it is read. The end of the link is the other
process' death.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from flowserve.process import Reason
from flowserve.wire import FinishReason, GenerateRequest, Logprobs, PrefillReply, WireModel

MAX_FRAME_BYTES = 16 << 20  # a prompt of a million tokens takes 8 MB
LENGTH_BYTES = 4


class Listening(WireModel):
    """output -> engine: the API port answers."""

    kind: Literal["listening"] = "listening"


class Hopeless(WireModel):
    """output -> engine: this configuration or checkpoint can never work."""

    kind: Literal["hopeless"] = "hopeless"
    reason: Reason
    message: str


class Submit(WireModel):
    """output -> engine: a request."""

    kind: Literal["submit"] = "submit"
    key: int
    request: GenerateRequest


class Cancel(WireModel):
    """output -> engine: nobody wants the rest of it; unknown and finished keys are ignored."""

    kind: Literal["cancel"] = "cancel"
    key: int


class Tokens(WireModel):
    """engine -> output: tokens ``index``… of the answer; the last one has a finish_reason."""

    kind: Literal["tokens"] = "tokens"
    key: int
    index: int
    tokens: tuple[int, ...]
    logprobs: tuple[Logprobs, ...] = ()  # one a token, if the request asks for them
    finish_reason: FinishReason | None = None


class Prefilled(WireModel):
    """engine -> output: the answer to a prefill."""

    kind: Literal["prefilled"] = "prefilled"
    key: int
    reply: PrefillReply


class Failed(WireModel):
    """engine -> output: the request ends here."""

    kind: Literal["failed"] = "failed"
    key: int
    error: str
    retryable: bool


FromOutput = Listening | Hopeless | Submit | Cancel
FromEngine = Tokens | Prefilled | Failed
Message = Annotated[FromOutput | FromEngine, Field(discriminator="kind")]

_ANY: TypeAdapter[FromOutput | FromEngine] = TypeAdapter(Message)


class Link:
    """One end of the pair. ``send`` never waits: what is on the way is bounded by the requests that are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, end: socket.socket) -> Link:
        return cls(*await asyncio.open_unix_connection(sock=end))

    def send(self, message: FromOutput | FromEngine) -> None:
        """Queues a message; lost without notice if the other side is gone, which ``messages`` tells."""
        body = message.model_dump_json().encode()
        self._writer.write(len(body).to_bytes(LENGTH_BYTES) + body)

    async def messages(self) -> AsyncIterator[FromOutput | FromEngine]:
        """What the other side says, until it is gone. Raises ValueError for what is no message."""
        try:
            while True:
                length = int.from_bytes(await self._reader.readexactly(LENGTH_BYTES))
                if length > MAX_FRAME_BYTES:
                    raise ValueError(f"a frame of {length} bytes is above the {MAX_FRAME_BYTES} allowed")
                yield _ANY.validate_json(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    async def close(self) -> None:
        """Sends what is queued, if the other side is there, and ends the link."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
