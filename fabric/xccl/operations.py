"""Several one-sided operations on one segment at once: `batch`.

Over shared memory they are carried out one after the other. A transport with a way to go (`Batching`) sends them
together and waits once. Either way they take effect in their order, and others may see any prefix of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from xccl.memory import Buffer, MappedMemory, RemoteMemory
from xccl.steps import Steps


@dataclass(frozen=True, slots=True)
class Load:
    """Gives the word at `offset`."""

    offset: int


@dataclass(frozen=True, slots=True)
class Store:
    """Writes the word at `offset`."""

    offset: int
    value: int


@dataclass(frozen=True, slots=True)
class Add:
    """Adds to the word at `offset`, atomically; gives the word before."""

    offset: int
    value: int


@dataclass(frozen=True, slots=True)
class Read:
    """Fills `into`."""

    offset: int
    into: Buffer


@dataclass(frozen=True, slots=True)
class Write:
    """Copies all of `data`."""

    offset: int
    data: Buffer


Operation: TypeAlias = Load | Store | Add | Read | Write
"""Offsets are bytes from the start of the segment, those of words multiples of 8."""


@runtime_checkable
class Batching(Protocol):
    """Memory that can carry out several operations in one exchange."""

    def batch(self, operations: Sequence[Operation]) -> Steps[list[int]]: ...


def batch(memory: RemoteMemory, operations: Sequence[Operation]) -> Steps[list[int]]:
    """Carry out `operations` in order; returns the words that loads and adds give. Raises what `memory` raises."""
    if not isinstance(memory, MappedMemory) and isinstance(memory, Batching):
        return (yield from memory.batch(operations))
    words = []
    for operation in operations:
        match operation:
            case Load(offset):
                words.append((yield from memory.load(offset)))
            case Store(offset, value):
                yield from memory.store(offset, value)
            case Add(offset, value):
                words.append((yield from memory.add(offset, value)))
            case Read(offset, into):
                yield from memory.read(offset, into)
            case Write(offset, data):
                yield from memory.write(offset, data)
    return words
