"""The p2p protocol: messages through a fixed ring in the receiver's memory.

The eight steps of xDeepServe's send/receive, for every piece of a message:

    send     1 read the application region   2 write the receiver's slot   3 publish tailPtr   4 poll for ACK
    receive  5 poll tailPtr   6 copy to the application region   7 write ACK   8 return

tailPtr counts the slots of the ring's whole life, so that a slot's earlier use is never taken for its present one;
ACK counts the slots copied out. Invariants: data before tailPtr; copy-out before ACK; tailPtr - ACK never exceeds
ring_slots. A receiver's ring is written by one sender, and ACK lies in the sender's own ring segment, so that
either side polls only its own memory.

A piece is a chunk in one slot (MTE), a run of neighbouring slots written by one copy (DMA), or a slot that only
says where in an application region of the sender the whole message lies (zero-copy); its ACK then means that the
sender may change these data again. The field of a piece tells its event, its bytes and how many slots of its
message follow.

Events number the messages of one direction and must grow. A receiver that gave up on an event skips what is left
of it when it waits for a later one; a receiver that waits for an event which the sender abandoned, or whose region it
has closed since, gets EventMismatch and may go on with a later one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, TypeAlias

from xccl.errors import CorruptField, EventMismatch, RingFull, Timeout
from xccl.field import Lost, await_field, await_word, publish
from xccl.header import CLOSED_OFFSET
from xccl.layout import Layout, RingMap, chunk_bytes
from xccl.memory import RemoteMemory
from xccl.operations import Load, Operation, Read, batch
from xccl.paths import Path
from xccl.region import Reference
from xccl.steps import Steps

Reach: TypeAlias = Callable[[int, int], Steps[RemoteMemory]]
"""The peer's application region of that number and size."""

_BYTES_BITS: Final = 32
_MOST_BYTES: Final = (1 << _BYTES_BITS) - 1
_BY_REFERENCE: Final = 1 << 63
_REFERENCE: Final = struct.Struct("=4Q")
_WHOLE_READ: Final = 4 << 20  # a longer one gives way in between: whoever drives it may have an event loop to run

SENT, SENT_EVENT, RECEIVED, CONSUMED_EVENT, FILLED, LEFT, POSTED = range(7)  # counters; native/ring.c knows them too


class Ring:
    """One side: `own` is the ring segment into which the peer sends, `remote` the peer's."""

    def __init__(self, own: RemoteMemory, remote: RemoteMemory, layout: Layout, lost: Lost, reach: Reach) -> None:
        self._own = own
        self._remote = remote
        self._map = RingMap(layout)
        self.slots = layout.ring_slots
        self._slot_bytes = layout.slot_bytes
        self._lost = lost
        self._reach = reach
        self.counters = memoryview(bytearray(7 * 8)).cast("Q")

    @property
    def contended(self) -> bool:
        """Whether the last message was not yet copied out when this was last looked at."""
        return self.counters[SENT] > self._acknowledged

    _acknowledged = 0

    def send(self, data: memoryview, event: int, path: Path) -> Steps[int]:
        """Write and publish all of `data` (bytes); returns the tail to wait for. `path` is MTE or DMA."""
        self._begin(event)
        chunk = chunk_bytes(len(data), self._slot_bytes) if path is Path.MTE else self._slot_bytes
        left = max(1, -(-len(data) // chunk))
        begin = 0
        while left:
            first = self.counters[SENT] + 1
            run = 1 if path is Path.MTE else min(left, self._run_from(first))
            yield from self._await_free(first + run - 1)
            piece = data[begin : begin + run * chunk]
            begin, left = begin + len(piece), left - run
            yield from self._remote.write(self._map.slot(first), piece)
            yield from publish(self._remote, self._map.field(first), first, event, left << _BYTES_BITS | len(piece))
            self.counters[SENT] = first + run - 1
        return self.counters[SENT]

    def send_reference(self, at: Reference, event: int) -> Steps[int]:
        """Publish where the data lie; returns the tail to wait for."""
        self._begin(event)
        tail = self.counters[SENT] + 1
        yield from self._await_free(tail)
        told = _REFERENCE.pack(at.number, at.region_bytes, at.offset, at.nbytes)
        yield from self._remote.write(self._map.slot(tail), told)
        yield from publish(self._remote, self._map.field(tail), tail, event, _BY_REFERENCE | len(told))
        self.counters[SENT] = tail
        return tail

    def await_copied(self, tail: int) -> Steps[None]:
        """Wait until the receiver has copied out everything up to `tail`."""
        acknowledged = yield from await_word(self._own, self._map.acknowledged, tail, self._lost)
        self._acknowledged = acknowledged
        if acknowledged > self.counters[SENT]:
            raise CorruptField(f"{acknowledged} slots are acknowledged, {self.counters[SENT]} were sent")

    def receive(self, into: memoryview, event: int, filled: int = 0, left: int | None = None) -> Steps[int]:
        """Receive one message into `into` (bytes) and return its size.

        `filled` bytes of it are already there, of which `left` slots follow.
        """
        if left is None and event <= self.counters[CONSUMED_EVENT]:
            raise ValueError(
                f"event {event} must be larger than {self.counters[CONSUMED_EVENT]}, the last one consumed"
            )
        while True:
            tail = self.counters[RECEIVED] + 1
            sent_event, told = yield from await_field(self._own, self._map.field(tail), tail, self._lost)
            if sent_event > event:
                raise EventMismatch(f"waited for event {event}, but the sender is already at {sent_event}")
            by_reference, nbytes = bool(told & _BY_REFERENCE), told & _MOST_BYTES
            follow = (told & ~_BY_REFERENCE) >> _BYTES_BITS
            run = max(1, -(-nbytes // self._slot_bytes))
            if run > self._run_from(tail) or (by_reference and (nbytes, follow) != (_REFERENCE.size, 0)):
                raise CorruptField(f"event {sent_event}: a piece of {nbytes} bytes at slot {tail} cannot be")
            if sent_event == event:
                if left not in (None, follow + run):
                    raise CorruptField(f"event {event}: a piece of {run} slots, {follow} to follow, is out of turn")
                if by_reference:
                    filled = yield from self._read_reference(tail, into, event)
                else:
                    _check_room(event, filled + nbytes, into)
                    yield from self._own.read(self._map.slot(tail), into[filled : filled + nbytes])
                    filled += nbytes
                left = follow
            self.counters[RECEIVED] = tail + run - 1
            self.counters[CONSUMED_EVENT] = sent_event
            yield from self._remote.store(self._map.acknowledged, tail + run - 1)
            if sent_event == event and follow == 0:
                return filled

    def echo(self, payload: bytes) -> Steps[bytes]:
        """Write a dummy payload of at most SCRATCH_BYTES beside the receiver's ring, and read it back."""
        back = bytearray(len(payload))
        yield from self._remote.write(self._map.scratch, payload)
        yield from self._remote.read(self._map.scratch, back)
        return bytes(back)

    def backlog(self) -> Steps[int]:
        """How many slots the receiver has not copied out yet."""
        return self.counters[SENT] - (yield from self._own.load(self._map.acknowledged))

    def await_room(self) -> Steps[None]:
        """Wait until there is a free slot."""
        yield from self._await_free(self.counters[SENT] + 1)

    def await_arrival(self) -> Steps[None]:
        """Wait until something has been published that was not received yet."""
        tail = self.counters[RECEIVED] + 1
        yield from await_word(self._own, self._map.field(tail), tail, self._lost)

    def _read_reference(self, tail: int, into: memoryview, event: int) -> Steps[int]:
        told = bytearray(_REFERENCE.size)
        yield from self._own.read(self._map.slot(tail), told)
        at = Reference(*_REFERENCE.unpack(told))
        if at.offset + at.nbytes > at.region_bytes:
            raise CorruptField(f"event {event}: {at} lies outside of its region")
        _check_room(event, at.nbytes, into)
        if at.nbytes:
            region = yield from self._reach(at.number, at.region_bytes)
            for begin in range(0, at.nbytes, _WHOLE_READ):
                if begin:
                    yield True
                end = min(begin + _WHOLE_READ, at.nbytes)
                look: list[Operation] = [Read(at.offset + begin, into[begin:end]), Load(CLOSED_OFFSET)]
                if any((yield from batch(region, look))):
                    raise EventMismatch(f"event {event}: the sender has given up the region in which its data lay")
        return at.nbytes

    def _begin(self, event: int) -> None:
        if event <= self.counters[SENT_EVENT]:
            raise ValueError(f"event {event} must be larger than {self.counters[SENT_EVENT]}, the last one sent")
        self.counters[SENT_EVENT] = event

    def _run_from(self, tail: int) -> int:
        """Slots from that of `tail` to the ring's end, as far as one field can tell their bytes."""
        return min(self.slots - tail % self.slots, _MOST_BYTES // self._slot_bytes)

    def _await_free(self, tail: int) -> Steps[None]:
        """Wait until the slot of `tail` is free."""
        try:
            yield from self.await_copied(max(0, tail - self.slots))
        except Timeout as late:
            raise RingFull(f"all {self.slots} slots are taken, the receiver copies nothing out; {late}") from late


def _check_room(event: int, nbytes: int, into: memoryview) -> None:
    if nbytes > len(into):
        raise ValueError(f"event {event}: the message is larger than the {len(into)} bytes given")
