"""The prefill side of a transfer: lays KV out in a region, from which the engine that asked for it reads it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from flowserve.cache import SequenceKV
from flowserve.transfer.lines import Lines
from flowserve.transfer.staging import Staging
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
        self._staging = Staging(endpoint)
        self._timeout = timeout
        self._tasks: set[asyncio.Task[None]] = set()

    def push(self, ticket: str, kv: SequenceKV, to: PullRequest) -> None:
        """Sends ``kv`` as f32[layers, tokens, width], event ``to.event``; it must not change until that has ended."""
        task = asyncio.create_task(self._push(ticket, kv, to))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _push(self, ticket: str, kv: SequenceKV, to: PullRequest) -> None:
        error = None
        try:
            async with self._lines.to(to.incarnation, to.fabric_uri, to.line) as line:
                channel = await line.channel(self._timeout)
                with self._staging.rows((kv.pool.layers, kv.length, kv.pool.width)) as rows:
                    kv.export(out=rows)
                    await arun(channel.send(rows, event=to.event), timeout=self._timeout)
        except (XcclError, ValueError, OSError) as failure:
            error = str(failure) or type(failure).__name__
        self.completions.put_nowait(Pushed(ticket, error))
