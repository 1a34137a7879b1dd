"""The XCCL channels of an engine to engines of other instances, one a peer's incarnation.

A line is taken (``async with``) for one transfer at a time, so that both sides agree on the order of events. It is
connected when first used. A line to a peer that is gone is forgotten: its successor has another incarnation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from xccl import Channel, Endpoint, Peer, PeerLost, arun


@dataclass(eq=False)
class Line:
    """The way to one peer, for the one who holds it."""

    endpoint: Endpoint
    peer: Peer
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    events: int = 0
    _channel: Channel | None = None

    def next_event(self) -> int:
        """A number that is larger than that of every transfer before."""
        self.events += 1
        return self.events

    async def channel(self, timeout: float) -> Channel:
        """The connection; both sides must ask for it. Raises XcclError."""
        if self._channel is None:
            self._channel = await arun(Channel.connect(self.endpoint, self.peer), timeout=timeout)
        return self._channel

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()


class Lines:
    """All lines of one engine."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._lines: dict[str, Line] = {}

    @asynccontextmanager
    async def to(self, incarnation: str, uri: str) -> AsyncIterator[Line]:
        """The line to a peer, for one transfer."""
        line = self._lines.get(incarnation)
        if line is None:
            line = self._lines[incarnation] = Line(self._endpoint, Peer(0, incarnation, uri))
        async with line.turn:
            try:
                yield line
            except PeerLost:
                if self._lines.pop(incarnation, None) is not None:
                    line.close()
                raise
