"""p2p between two endpoints: `send` and `receive` over a fixed ring in the receiver's memory.

The eight steps of xDeepServe's send/receive, for every chunk of at most slot_bytes:

    send     1 read the application region   2 write the receiver's slot   3 publish tailPtr   4 poll for ACK
    receive  5 poll tailPtr   6 copy to the application region   7 write ACK   8 return

tailPtr counts the chunks of the ring's whole life, so that a slot's earlier use is never taken for its present
one; ACK counts the chunks copied out. Invariants: data before tailPtr; copy-out before ACK; tailPtr - ACK never
exceeds ring_slots. A receiver's ring is written by one sender, and ACK lies in the sender's own ring segment, so
that either side polls only its own memory.

Events number the messages of one direction and must grow. A receiver that gave up on an event skips what is left
of it when it waits for a later one; a receiver that waits for an event which the sender abandoned gets
EventMismatch and may go on with a later one.
"""

from __future__ import annotations

from typing import Final, Self

from xccl.endpoint import Endpoint, Reached, ring_name
from xccl.errors import Broken, CorruptField, EventMismatch, RingFull, Timeout
from xccl.field import Lost, await_field, await_word, publish
from xccl.layout import Layout, RingMap
from xccl.memory import Buffer, RemoteMemory, octets
from xccl.shm import Segment
from xccl.steps import Steps
from xccl.uri import Peer

_BYTES_BITS: Final = 32


class Ring:
    """The p2p protocol of one side over two ring segments: `own`, into which the peer sends, and `remote`."""

    def __init__(self, own: RemoteMemory, remote: RemoteMemory, layout: Layout, lost: Lost) -> None:
        self._own = own
        self._remote = remote
        self._map = RingMap(layout)
        self._slots = layout.ring_slots
        self._slot_bytes = layout.slot_bytes
        self._lost = lost
        self._sent = 0
        self._sent_event = 0
        self._received = 0
        self._consumed_event = 0

    def send(self, data: memoryview, event: int) -> Steps[None]:
        """Send all of `data` (bytes) and wait until it was copied out."""
        if event <= self._sent_event:
            raise ValueError(f"event {event} must be larger than {self._sent_event}, the last one sent")
        self._sent_event = event
        for begin in range(0, max(len(data), 1), self._slot_bytes):
            yield from self._await_free_slot()
            chunk = data[begin : begin + self._slot_bytes]
            left = max(0, len(data) - begin - 1) // self._slot_bytes
            tail = self._sent + 1
            yield from self._remote.write(self._map.slot(tail), chunk)
            yield from publish(self._remote, self._map.field(tail), tail, event, left << _BYTES_BITS | len(chunk))
            self._sent = tail
        yield from self._await_acknowledged(self._sent)

    def receive(self, into: memoryview, event: int) -> Steps[int]:
        """Receive one message into `into` (bytes) and return its size."""
        if event <= self._consumed_event:
            raise ValueError(f"event {event} must be larger than {self._consumed_event}, the last one consumed")
        filled = 0
        left_before: int | None = None
        while True:
            tail = self._received + 1
            sent_event, chunk = yield from await_field(self._own, self._map.field(tail), tail, self._lost)
            if sent_event > event:
                raise EventMismatch(f"waited for event {event}, but the sender is already at {sent_event}")
            left, nbytes = chunk >> _BYTES_BITS, chunk & (1 << _BYTES_BITS) - 1
            if sent_event == event:
                whole = nbytes == self._slot_bytes or (left == 0 and nbytes < self._slot_bytes)
                if not whole or left_before not in (None, left + 1):
                    raise CorruptField(f"event {event}: a chunk of {nbytes} bytes, {left} to follow, is out of turn")
                if filled + nbytes > len(into):
                    raise ValueError(f"event {event}: the message is larger than the {len(into)} bytes given")
                yield from self._own.read(self._map.slot(tail), into[filled : filled + nbytes])
                filled += nbytes
                left_before = left
            self._received = tail
            self._consumed_event = sent_event
            yield from self._remote.store(self._map.acknowledged, tail)
            if sent_event == event and left == 0:
                return filled

    def _await_free_slot(self) -> Steps[None]:
        try:
            yield from self._await_acknowledged(self._sent + 1 - self._slots)
        except Timeout as late:
            raise RingFull(f"all {self._slots} slots are taken, the receiver copies nothing out; {late}") from late

    def _await_acknowledged(self, tail: int) -> Steps[None]:
        acknowledged = yield from await_word(self._own, self._map.acknowledged, tail, self._lost)
        if acknowledged > self._sent:
            raise CorruptField(f"{acknowledged} chunks are acknowledged, {self._sent} were sent")


class Channel:
    """A connection between two endpoints, once in the life of both. Use `connect`; both sides must.

    One send and one receive may be under way at a time. Either may fail or be abandoned; the channel stays usable
    for later events unless the peer was lost.
    """

    def __init__(self, endpoint: Endpoint, peer: Peer, own: Segment, remote: Reached) -> None:
        self.peer = peer
        watch = endpoint.watch([(peer.rank, remote)])
        self._own = own
        self._ring = Ring(own.memory, remote.memory, endpoint.layout, watch.lost)
        self._sending = False
        self._receiving = False

    @classmethod
    def connect(cls, endpoint: Endpoint, peer: Peer) -> Steps[Self]:
        """Connect to `peer`; done when it does the same. After Timeout it may be tried again.

        Raises what `Endpoint.connect` raises; Broken when the two were connected before.
        """
        name, nbytes = ring_name(peer.incarnation), endpoint.layout.ring_bytes
        own = endpoint.own(name, nbytes)
        remote = yield from endpoint.connect(peer, ring_name(endpoint.incarnation), nbytes)
        endpoint.claim(name)
        return cls(endpoint, peer, own, remote)

    def close(self) -> None:
        """Close the own ring: a peer that waits for this side gets PeerLost. Idempotent."""
        self._own.close()

    def send(self, data: Buffer, *, event: int) -> Steps[None]:
        """Send a C-contiguous buffer of any size as message `event`; done when the peer has copied all of it.

        Raises ValueError when `event` is not larger than the last one, PeerLost, Broken when a send is under way;
        RingFull for Timeout when the receiver takes nothing.
        """
        if self._sending:
            raise Broken(f"a send to {self.peer.incarnation} is under way; await it first")
        self._sending = True
        try:
            yield from self._ring.send(octets(data), event)
        finally:
            self._sending = False

    def receive(self, into: Buffer, *, event: int) -> Steps[int]:
        """Receive message `event` into a writable C-contiguous buffer; returns its size in bytes.

        Messages of smaller events that are still in the ring are dropped. Raises ValueError when the message is
        larger than `into` or the event was consumed before, EventMismatch when the sender has given it up,
        CorruptField, PeerLost, Broken when a receive is under way.
        """
        if self._receiving:
            raise Broken(f"a receive from {self.peer.incarnation} is under way; await it first")
        self._receiving = True
        try:
            return (yield from self._ring.receive(octets(into), event))
        finally:
            self._receiving = False
