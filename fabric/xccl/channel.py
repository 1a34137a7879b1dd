"""A connection between two endpoints: who may send and receive when, by which path, and how waiting is done.

The protocol itself is in `ring`. Two ways lead to it: `send` and `receive` are Steps for any driver; `send_now` and
`receive_now` block the thread, and where both ends share memory a message is one call of compiled code, which speaks
the same protocol on the same counters. Whatever is unusual there falls back to the Steps.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, Self

from xccl import atomics
from xccl.endpoint import Endpoint, Reached, ring_name
from xccl.errors import Broken, PeerLost
from xccl.header import CLOSED_OFFSET
from xccl.layout import FIELD_STRIDE, RingMap
from xccl.memory import Buffer, MappedMemory, RemoteMemory, octets
from xccl.paths import AIVS_PER_SEND, UNIFIED_BUFFER_BYTES, ZERO_COPY_BYTES, Path, Rule, Situation, default_rule
from xccl.probe import Report, probe
from xccl.region import Reference, region_name
from xccl.ring import CONSUMED_EVENT, FILLED, LEFT, RECEIVED, SENT, Ring
from xccl.shm import Segment
from xccl.steps import Steps, run
from xccl.uri import Peer

_MTE, _DMA = Path.MTE, Path.DMA  # looking a member up takes longer than all else that `send_now` does
_GLANCE: Final = 100e-6  # one peer, which normally has a core of its own; copying 1 MiB takes about as long
_COPY_SECONDS: Final = 1e-10  # a byte, at a rate that most machines exceed: for so long the receiver is surely busy

if atomics.NATIVE:
    from xccl._native import DECLINED, PARTIAL, UNACKNOWLEDGED, RingEnd


class Channel:
    """Made once in the life of both endpoints, or once a line. Use `connect`; both sides must.

    One message each way may be on its way into or out of the ring at a time; sent messages that wait for their
    acknowledgement may be many. Either side may fail or be abandoned; the channel stays usable for later events
    unless the peer was lost. For one thread at a time.
    """

    def __init__(
        self, endpoint: Endpoint, peer: Peer, own: Segment, remote: Reached, rule: Rule, discard: Callable[[], None]
    ) -> None:
        self.peer = peer
        self._discard = discard
        self._endpoint = endpoint
        self._rule = rule
        self._own = own
        self._regions: dict[int, Reached] = {}
        self._watch = endpoint.watch([(peer.rank, remote)])
        self._ring = Ring(own.memory, remote.memory, endpoint.layout, self._watch.lost, self._reach)
        # Compiled code follows the default rule; another one may want another path for any message.
        self._native = _native_end(endpoint, self._ring, own.memory, remote.memory) if rule is default_rule else None
        self._sending = False
        self._receiving = False

    @classmethod
    def connect(cls, endpoint: Endpoint, peer: Peer, *, rule: Rule = default_rule, line: int = 0) -> Steps[Self]:
        """Connect to `peer`; done when it does the same. After Timeout it may be tried again.

        Both sides name the same `line`. After LinkBroken nobody knows what has arrived: close the channel, and connect
        another line. Raises what `Endpoint.connect` raises; Broken when the two were connected by this line before.
        """
        name, nbytes = ring_name(peer.incarnation, line), endpoint.layout.ring_bytes
        own = endpoint.own(name, nbytes)
        try:
            remote = yield from endpoint.connect(peer, ring_name(endpoint.incarnation, line), nbytes)
        except PeerLost:
            endpoint.discard(name)
            raise
        endpoint.claim(name)
        return cls(endpoint, peer, own, remote, rule, lambda: endpoint.discard(name))

    def close(self) -> None:
        """Close the own ring: a peer that waits for this side gets PeerLost. Idempotent."""
        self._own.close()
        self._discard()

    def send(self, data: Buffer, *, event: int, path: Path | None = None) -> Steps[None]:
        """Send a C-contiguous buffer of any size as message `event`; done when the peer has copied all of it.

        `path` None leaves the choice to the rule. Raises ValueError when `event` is not larger than the last one or
        for ZERO_COPY of data outside of every region; PeerLost, Broken when another send is still writing; RingFull
        for Timeout when the receiver takes nothing. xDeepServe, "send/receive".
        """
        if self._sending:
            raise Broken(f"a send to {self.peer.incarnation} is under way; await it first")
        self._sending = True
        try:
            source = octets(data)
            at = self._endpoint.reference(source)
            path = path or self._choose(len(source), at)
            with self._endpoint.cores.taken(path):
                if path is not Path.ZERO_COPY or not source:
                    tail = yield from self._ring.send(source, event, path)
                elif at is not None:
                    tail = yield from self._ring.send_reference(at, event)
                else:
                    raise ValueError("zero-copy needs data in a region of this endpoint (Endpoint.region)")
        finally:
            self._sending = False
        yield from self._ring.await_copied(tail)

    def receive(self, into: Buffer, *, event: int) -> Steps[int]:
        """Receive message `event` into a writable C-contiguous buffer; returns its size in bytes.

        Messages of smaller events that are still in the ring are dropped. Raises ValueError when the message is
        larger than `into` or the event was consumed before, EventMismatch when the sender has given it up,
        CorruptField, PeerLost, Broken when a receive is under way. xDeepServe, "send/receive".
        """
        return self._receive(into, event, 0, None)

    def send_now(self, data: Buffer, *, event: int, timeout: float, path: Path | None = None) -> None:
        """`send`, blocking the thread. Raises Timeout too."""
        native = self._native
        if native is None or self._sending or path is _DMA:
            run(self.send(data, event=event, path=path), timeout=timeout, glance=_GLANCE)
            return
        done = (
            native.send(data, event, sys.maxsize, False) if path is _MTE else self._by_rule(native, data, event, path)
        )
        if done == DECLINED:
            run(self.send(data, event=event, path=path), timeout=timeout, glance=_GLANCE)
        elif done == PARTIAL:
            run(self._send_rest(native, data, event), timeout=timeout, glance=_GLANCE)
        elif done == UNACKNOWLEDGED:
            awake = len(octets(data)) * _COPY_SECONDS
            run(self._ring.await_copied(self._ring.counters[SENT]), timeout=timeout, glance=_GLANCE, awake=awake)

    def receive_now(self, into: Buffer, *, event: int, timeout: float) -> int:
        """`receive`, blocking the thread. Raises Timeout too."""
        if self._native is None or self._receiving:
            return run(self.receive(into, event=event), timeout=timeout, glance=_GLANCE)
        nbytes = self._native.receive(into, event, False)
        if nbytes >= 0:
            return nbytes
        return run(self._receive_rest(self._native, into, event), timeout=timeout, glance=_GLANCE)

    def probe(self, *, timeout: float, patience: float = 0.1) -> Steps[Report]:
        """Ask what is wrong, if anything is, at any time: also while a send or a receive is under way.

        A dummy payload must come back from the peer's memory within `timeout` seconds; where the ring is full, the
        receiver has `patience` seconds to take something. Never raises XcclError. xDeepServe, "link probes".
        """
        return probe(self._ring, self._watch.look, timeout=timeout, patience=patience)

    def _by_rule(self, native: RingEnd, data: Buffer, event: int, path: Path | None) -> int:
        """Send in compiled code what the default rule, or `path`, sends in chunks or by reference."""
        regions = self._endpoint.region_buffers
        if path is not None:
            return native.send_reference(data, event, regions, 0)
        if regions:
            done = native.send(data, event, ZERO_COPY_BYTES - 1, False)
            if done == DECLINED:
                done = native.send_reference(data, event, regions, ZERO_COPY_BYTES)
            if done != DECLINED:
                return done
        most = sys.maxsize if self._endpoint.cores.free >= AIVS_PER_SEND else UNIFIED_BUFFER_BYTES
        return native.send(data, event, most, False)

    def _send_rest(self, native: RingEnd, data: Buffer, event: int) -> Steps[None]:
        """Go on in compiled code, and wait here while the ring is full."""
        self._sending = True
        try:
            done = PARTIAL
            while done == PARTIAL:
                yield from self._ring.await_room()
                done = native.send(data, event, sys.maxsize, True)
        finally:
            self._sending = False
        yield from self._ring.await_copied(self._ring.counters[SENT])

    def _receive_rest(self, native: RingEnd, into: Buffer, event: int) -> Steps[int]:
        """Go on in compiled code, and wait here while nothing arrives; the Steps take over what it cannot take."""
        counters = self._ring.counters
        while True:
            begun = counters[FILLED] > 0
            received = counters[RECEIVED]
            if begun or event > counters[CONSUMED_EVENT]:
                yield from self._ring.await_arrival()
                nbytes = native.receive(into, event, begun)
                if nbytes >= 0:
                    return nbytes
            if counters[RECEIVED] == received:
                filled = counters[FILLED]
                return (yield from self._receive(into, event, filled, counters[LEFT] if filled else None))

    def _receive(self, into: Buffer, event: int, filled: int, left: int | None) -> Steps[int]:
        if self._receiving:
            raise Broken(f"a receive from {self.peer.incarnation} is under way; await it first")
        self._receiving = True
        try:
            return (yield from self._ring.receive(octets(into), event, filled, left))
        finally:
            self._receiving = False

    def _choose(self, nbytes: int, at: Reference | None) -> Path:
        cores = self._endpoint.cores
        return self._rule(Situation(nbytes, at is not None, cores.free, self._ring.contended))

    def _reach(self, number: int, nbytes: int) -> Steps[RemoteMemory]:
        region = self._regions.get(number)
        if region is None:
            self._regions = {each: known for each, known in self._regions.items() if not known.closed}
            region = yield from self._endpoint.connect(self.peer, region_name(number), nbytes)
            self._regions[number] = region
            if self._native is not None and type(region.memory) is MappedMemory:
                self._native.know_region(number, region.memory.buffer, CLOSED_OFFSET)
        return region.memory


def _native_end(endpoint: Endpoint, ring: Ring, own: RemoteMemory, remote: RemoteMemory) -> RingEnd | None:
    """The compiled half, where there is one and both segments are mapped."""
    if not (atomics.NATIVE and type(own) is MappedMemory and type(remote) is MappedMemory):
        return None
    layout, offsets = endpoint.layout, RingMap(endpoint.layout)
    return RingEnd(
        own.buffer,
        remote.buffer,
        ring.counters,
        offsets.acknowledged,
        offsets.field(0),
        FIELD_STRIDE,
        offsets.slot(0),
        layout.ring_slots,
        layout.slot_bytes,
        UNIFIED_BUFFER_BYTES,
    )
