"""A peer's memory behind a link that may be faulty; see `faults`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl.atomics import Offsets
from xccl.errors import PeerLost
from xccl.faults import FaultyLink
from xccl.liveness import Owner, Watched
from xccl.memory import Buffer, RemoteMemory, Rows, octets
from xccl.steps import Steps

_WORD_BITS = 64


class FaultyMemory:
    """`RemoteMemory` of `rank`, by way of `link`."""

    def __init__(self, memory: RemoteMemory, link: FaultyLink, rank: int) -> None:
        self._memory = memory
        self._link = link
        self._rank = rank

    def load(self, offset: int) -> Steps[int]:
        began = yield from self._asks()
        value = yield from self._memory.load(offset)
        yield from self._link.ends(began, self._rank)
        return self._word(value)

    def store(self, offset: int, value: int) -> Steps[None]:
        began = yield from self._link.starts(self._rank)
        if not self._link.loses():
            yield from self._memory.store(offset, self._word(value))
        yield from self._link.ends(began, self._rank)

    def add(self, offset: int, value: int) -> Steps[int]:
        began = yield from self._asks()
        before = yield from self._memory.add(offset, self._word(value))
        yield from self._link.ends(began, self._rank)
        return before

    def add_each(self, offsets: Offsets, value: int) -> Steps[None]:
        began = yield from self._link.starts(self._rank)
        if not self._link.loses():
            yield from self._memory.add_each(offsets, self._word(value))
        yield from self._link.ends(began, self._rank)

    def read(self, offset: int, into: Buffer) -> Steps[None]:
        began = yield from self._asks()
        yield from self._memory.read(offset, into)
        yield from self._link.ends(began, self._rank)
        self._turn_over(octets(into))

    def write(self, offset: int, data: Buffer) -> Steps[None]:
        began = yield from self._link.starts(self._rank)
        if not self._link.loses():
            yield from self._memory.write(offset, self._on_the_way(data))
        yield from self._link.ends(began, self._rank)

    def read_rows(self, offset: int, rows: Rows, into: NDArray[Any]) -> Steps[None]:
        began = yield from self._asks()
        yield from self._memory.read_rows(offset, rows, into)
        yield from self._link.ends(began, self._rank)
        self._turn_over(octets(into))

    def write_rows(self, offset: int, rows: Rows, data: NDArray[Any]) -> Steps[None]:
        began = yield from self._link.starts(self._rank)
        if not self._link.loses():
            arriving = np.frombuffer(self._on_the_way(data), data.dtype).reshape(data.shape) if data.size else data
            yield from self._memory.write_rows(offset, rows, arriving)
        yield from self._link.ends(began, self._rank)

    def _asks(self) -> Steps[float]:
        """The beginning of an operation with an answer, which never comes if it gets lost."""
        began = yield from self._link.starts(self._rank)
        if self._link.loses():
            yield from self._link.lose(self._rank)
        return began

    def _word(self, value: int) -> int:
        bit = self._link.damages(_WORD_BITS)
        return value if bit is None else value ^ 1 << bit

    def _on_the_way(self, data: Buffer) -> memoryview:
        """The data, or a copy with a bit turned over; the caller's own stay as they are."""
        source = octets(data)
        if self._link.disturbance.corrupt:
            source = memoryview(bytearray(source))
            self._turn_over(source)
        return source

    def _turn_over(self, data: memoryview) -> None:
        bit = self._link.damages(8 * len(data))
        if bit is not None:
            data[bit >> 3] ^= 1 << (bit & 7)


@dataclass(frozen=True, eq=False)
class FaultySegment:
    """A peer's segment behind a link; what is known of the peer comes through it too."""

    segment: Watched
    link: FaultyLink
    rank: int
    memory: RemoteMemory

    @property
    def owner(self) -> Owner:
        return self.segment.owner

    @property
    def failure(self) -> PeerLost | None:
        return self.link.broken(self.rank) if self.link.down else self.segment.failure

    @property
    def closed(self) -> bool:
        return not self.link.down and self.segment.closed
