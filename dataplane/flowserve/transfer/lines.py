"""The XCCL channels of an engine to engines of other instances, one a peer's incarnation.

A line is taken (``async with``) for one transfer at a time, so that both sides agree on the order of events. It is
connected when first used. One that is lost, or on which a transfer is not finished in time, is closed and forgotten:
a restarted peer has another incarnation, and a peer whose link only broke, or has swallowed something, gets a line
with a larger number, which the pulling side chooses and tells the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

from xccl import Channel, Endpoint, Peer, PeerLost, Timeout, arun


@dataclass(eq=False)
class Line:
    """The way to one peer, for the one who holds it."""

    endpoint: Endpoint
    peer: Peer
    number: int
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
            connecting = Channel.connect(self.endpoint, self.peer, line=self.number)
            self._channel = await arun(connecting, timeout=timeout)
        return self._channel

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()


class Lines:
    """All lines of one engine."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._lines: dict[str, Line] = {}
        self._numbers = count()

    @asynccontextmanager
    async def to(self, incarnation: str, uri: str, number: int | None = None) -> AsyncIterator[Line]:
        """The line to a peer, for one transfer: the one with that number, or, where it is chosen here, what there is.

        Raises ValueError for a number that is older than that of the line in use.
        """
        line = self._lines.get(incarnation)
        if line is not None and number is not None and number < line.number:
            raise ValueError(f"line {number} to {incarnation} was replaced by line {line.number}")
        if line is None or number not in (None, line.number):
            if line is not None:
                line.close()
            chosen = next(self._numbers) if number is None else number
            line = self._lines[incarnation] = Line(self._endpoint, Peer(0, incarnation, uri), chosen)
        async with line.turn:
            try:
                yield line
            except (PeerLost, Timeout):
                line.close()
                if self._lines.get(incarnation) is line:
                    del self._lines[incarnation]
                raise
