"""A metadata field: how one die tells another that something is there.

32 bytes in a cache line of its own: the word that publishes, two payload words, and a seal over all three.
The payload is stored first and the publishing word last, each as one aligned 8-byte store, so that whoever sees
the publishing word sees its payload and everything its writer wrote before. The publishing word only ever grows,
which makes reuse of a field safe: a reader waits for one exact value, takes smaller ones for the past, and knows
from a larger one that its peer runs another sequence.

Over mapped memory compiled code does the same with one call, where there is some.

    p2p          tailPtr   eventID   chunks left and bytes
    all-to-all   eventID   offset    token count
    vote         eventID   word      -
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from xccl.errors import CorruptField, EventMismatch, PeerLost
from xccl.memory import MappedMemory, RemoteMemory
from xccl.operations import Store, batch
from xccl.steps import Steps

Lost: TypeAlias = Callable[[], PeerLost | None]
"""Asked while waiting: the error to raise if a peer is known to be gone."""

_WORD: Final = (1 << 64) - 1


def publish(memory: RemoteMemory, offset: int, word: int, first: int, second: int) -> Steps[None]:
    """Write a field: payload, seal, then the publishing word."""
    if isinstance(memory, MappedMemory) and (fields := memory.at_once) is not None:
        fields.publish(offset, word, first, second)
        return
    stores = (
        Store(offset + 8, first),
        Store(offset + 16, second),
        Store(offset + 24, _seal(word, first, second)),
        Store(offset, word),
    )
    yield from batch(memory, stores)


def await_word(memory: RemoteMemory, offset: int, least: int, lost: Lost) -> Steps[int]:
    """Wait until the word at `offset`, which only grows, is at least `least`; returns it. Raises PeerLost."""
    gone: PeerLost | None = None
    fresh = True
    while (seen := (yield from memory.load(offset))) < least:
        if gone is not None:
            raise gone  # it was gone before this load, so that nothing more will come
        gone = lost()
        yield fresh
        fresh = False
    return seen


def await_field(memory: RemoteMemory, offset: int, word: int, lost: Lost) -> Steps[tuple[int, int]]:
    """Wait for `word` and return the payload. Raises EventMismatch, CorruptField, PeerLost."""
    if isinstance(memory, MappedMemory) and (fields := memory.at_once) is not None:
        payload = fields.field(offset, word)
        if payload is not None:
            return payload
    seen = yield from await_word(memory, offset, word, lost)
    first = yield from memory.load(offset + 8)
    second = yield from memory.load(offset + 16)
    if (yield from memory.load(offset + 24)) != _seal(seen, first, second):
        raise CorruptField(f"the field at offset {offset} for {word} does not match its seal")
    if seen > word:
        raise EventMismatch(f"waited for {word} at offset {offset}, but the peer is already at {seen}")
    return first, second


def _seal(word: int, first: int, second: int) -> int:
    return (word * 0x9E3779B97F4A7C15 + first * 0xC2B2AE3D27D4EB4F + second * 0x165667B19E3779F9) & _WORD
