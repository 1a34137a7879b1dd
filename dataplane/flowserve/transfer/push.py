"""The prefill side of a transfer: sends KV into the ring of the engine that asked for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from flowserve.model import FloatArray
from flowserve.transfer.lines import Lines
from flowserve.wire import PullRequest
from xccl import Endpoint, XcclError, arun


@dataclass(frozen=True)
class Pushed:
    """A completion: ``error`` is None if the receiver has acknowledged all of it."""

    ticket: str
    error: str | None


class Pusher:
    """Every ``push`` ends in ``completions``; it never blocks the caller and never raises."""

    def __init__(self, endpoint: Endpoint, timeout: float) -> None:
        self.completions: asyncio.Queue[Pushed] = asyncio.Queue()
        self._lines = Lines(endpoint)
        self._timeout = timeout
        self._tasks: set[asyncio.Task[None]] = set()

    def push(self, ticket: str, rows: FloatArray, to: PullRequest) -> None:
        """Sends f32[layers, tokens, width] as event ``to.event``."""
        task = asyncio.create_task(self._push(ticket, rows, to))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _push(self, ticket: str, rows: FloatArray, to: PullRequest) -> None:
        error = None
        try:
            async with self._lines.to(to.incarnation, to.fabric_uri, to.line) as line:
                channel = await line.channel(self._timeout)
                await arun(channel.send(rows, event=to.event), timeout=self._timeout)
        except (XcclError, ValueError, OSError) as failure:
            error = str(failure) or type(failure).__name__
        self.completions.put_nowait(Pushed(ticket, error))
