"""`RemoteMemory`: one segment of a die's memory as protocols see it, whoever owns it and however it is reached.

Every operation is one-sided: the owner takes no part. Operations are Steps, since a transport may have to wait
for its answer; over shared memory they finish at once. A caller's own segment has the same interface.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from mmap import mmap
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from xccl.atomics import Fields, Offsets, fields_over, words_over
from xccl.steps import Steps

Buffer: TypeAlias = bytes | bytearray | memoryview | NDArray[Any]
"""A C-contiguous buffer of any item type; another one raises TypeError."""

Rows: TypeAlias = NDArray[np.intp]
"""Numbers of rows, that is of items along the first axis of a C-contiguous array of at least one axis."""


class RemoteMemory(Protocol):
    """One-sided access to a segment. Offsets are bytes from its start; words are aligned to 8 bytes."""

    def load(self, offset: int) -> Steps[int]:
        """Read a word with acquire: what its writer wrote before it is visible to later reads."""

    def store(self, offset: int, value: int) -> Steps[None]:
        """Write a word with release: earlier writes of this caller are visible to whoever loads it."""

    def add(self, offset: int, value: int) -> Steps[int]:
        """Add to a word (modulo 2**64), atomically, with acquire and release; returns the word before."""

    def add_each(self, offsets: Offsets, value: int) -> Steps[None]:
        """`add` to each word of `offsets` (int64[N]), in one request; the words before are not told."""

    def read(self, offset: int, into: Buffer) -> Steps[None]:
        """Copy bytes out of the segment until `into` is full."""

    def write(self, offset: int, data: Buffer) -> Steps[None]:
        """Copy all of `data` into the segment."""

    def read_rows(self, offset: int, rows: Rows, into: NDArray[Any]) -> Steps[None]:
        """Gather in one request: row i of `into` is row `rows[i]` of an array of such rows at `offset`."""

    def write_rows(self, offset: int, rows: Rows, data: NDArray[Any]) -> Steps[None]:
        """Scatter in one request: row i of `data` becomes row `rows[i]`; no row is named twice."""


class MappedMemory:
    """RemoteMemory over a buffer in this address space: a mapped file or, in tests, a bytearray."""

    before_access: Iterable[bool] = ()
    """Yielded from before every access. Memory is always ready, so that nothing waits here; a test that explores
    interleavings puts a yield in."""

    def __init__(self, buffer: mmap | bytearray) -> None:
        self.buffer = buffer
        words = words_over(buffer)
        self.peek: Final = words.load
        """`load` outside any protocol, which local memory allows."""
        self.poke: Final = words.store
        """`store` outside any protocol."""
        self._words = words
        self._fields = fields_over(words)

    @property
    def at_once(self) -> Fields | None:
        """What reads or writes a whole field in one call, if there is such a thing and nobody watches the accesses."""
        return None if self.before_access else self._fields

    def load(self, offset: int) -> Steps[int]:
        yield from self.before_access
        return self.peek(offset)

    def store(self, offset: int, value: int) -> Steps[None]:
        yield from self.before_access
        self.poke(offset, value)

    def add(self, offset: int, value: int) -> Steps[int]:
        yield from self.before_access
        return self._words.add(offset, value)

    def add_each(self, offsets: Offsets, value: int) -> Steps[None]:
        yield from self.before_access
        self._words.add_each(offsets, value)

    def read(self, offset: int, into: Buffer) -> Steps[None]:
        yield from self.before_access
        self._words.read(offset, octets(into))

    def write(self, offset: int, data: Buffer) -> Steps[None]:
        yield from self.before_access
        self._words.write(offset, octets(data))

    def read_rows(self, offset: int, rows: Rows, into: NDArray[Any]) -> Steps[None]:
        yield from self.before_access
        if rows.size:
            # The array holds every row asked for, so that nothing is clipped; with "raise" take would copy twice.
            self._array(offset, _extent(rows), into).take(rows, axis=0, out=into, mode="clip")

    def write_rows(self, offset: int, rows: Rows, data: NDArray[Any]) -> Steps[None]:
        yield from self.before_access
        if rows.size:
            self._array(offset, _extent(rows), data)[rows] = data

    def view(self, offset: int, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """The segment's own bytes as an array, outside any protocol."""
        return np.frombuffer(self.buffer, dtype, math.prod(shape), offset).reshape(shape)

    def _array(self, offset: int, rows: int, like: NDArray[Any]) -> NDArray[Any]:
        """The segment's bytes from `offset` as `rows` rows such as `like` has. Raises ValueError past its end."""
        return self.view(offset, (rows, *like.shape[1:]), like.dtype)


def _extent(rows: Rows) -> int:
    """How many rows an array must have to hold all of `rows`; absurdly many where one is negative."""
    return int(rows.view(np.uintp).max()) + 1


def mapped(memories: Sequence[RemoteMemory]) -> tuple[mmap | bytearray, ...] | None:
    """The buffers of `memories`, if compiled code may work on all of them at once."""
    found = tuple(m.buffer for m in memories if isinstance(m, MappedMemory) and m.at_once is not None)
    return found if len(found) == len(memories) else None


def octets(buffer: Buffer) -> memoryview:
    """The buffer's bytes, not copied. Raises TypeError when it is not C-contiguous."""
    view = buffer.data if isinstance(buffer, np.ndarray) else memoryview(buffer)
    return view.cast("B") if view.nbytes else memoryview(bytearray())
