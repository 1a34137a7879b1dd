"""`RemoteMemory`: one segment of a die's memory as protocols see it, whoever owns it and however it is reached.

Every operation is one-sided: the owner takes no part. Operations are Steps, since a transport may have to wait
for its answer; over shared memory they finish at once. A caller's own segment has the same interface.
"""

from __future__ import annotations

from collections.abc import Iterable
from mmap import mmap
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xccl.atomics import load_acquire, store_release
from xccl.steps import Steps

Buffer: TypeAlias = bytes | bytearray | memoryview | NDArray[Any]
"""A C-contiguous buffer of any item type; another one raises TypeError."""


class RemoteMemory(Protocol):
    """One-sided access to a segment. Offsets are bytes from its start; words are aligned to 8 bytes."""

    def load(self, offset: int) -> Steps[int]:
        """Read a word with acquire: what its writer wrote before it is visible to later reads."""

    def store(self, offset: int, value: int) -> Steps[None]:
        """Write a word with release: earlier writes of this caller are visible to whoever loads it."""

    def read(self, offset: int, into: Buffer) -> Steps[None]:
        """Copy bytes out of the segment until `into` is full."""

    def write(self, offset: int, data: Buffer) -> Steps[None]:
        """Copy all of `data` into the segment."""


class MappedMemory:
    """RemoteMemory over a buffer in this address space: a mapped file or, in tests, a bytearray."""

    before_access: Iterable[bool] = ()
    """Yielded from before every access. Memory is always ready, so that nothing waits here; a test that explores
    interleavings puts a yield in."""

    def __init__(self, buffer: mmap | bytearray) -> None:
        self._bytes = memoryview(buffer)
        self._words = self._bytes.cast("Q")

    def load(self, offset: int) -> Steps[int]:
        yield from self.before_access
        return load_acquire(self._words, offset >> 3)

    def store(self, offset: int, value: int) -> Steps[None]:
        yield from self.before_access
        store_release(self._words, offset >> 3, value)

    def read(self, offset: int, into: Buffer) -> Steps[None]:
        yield from self.before_access
        target = octets(into)
        target[:] = self._bytes[offset : offset + len(target)]

    def write(self, offset: int, data: Buffer) -> Steps[None]:
        yield from self.before_access
        source = octets(data)
        self._bytes[offset : offset + len(source)] = source

    def peek(self, offset: int) -> int:
        """`load` outside any protocol, which local memory allows."""
        return load_acquire(self._words, offset >> 3)

    def poke(self, offset: int, value: int) -> None:
        """`store` outside any protocol."""
        store_release(self._words, offset >> 3, value)


def octets(buffer: Buffer) -> memoryview:
    """The buffer's bytes, not copied. Raises TypeError when it is not C-contiguous."""
    view = buffer.data if isinstance(buffer, np.ndarray) else memoryview(buffer)
    return view.cast("B") if view.nbytes else memoryview(bytearray())
