"""One process' die: the segments it owns, and how it finds those of its peers.

An endpoint is known by its incarnation, which is new with every process, and by its URI (see `uri`). Its segments
are files of its directory:

    <incarnation>.endpoint         says that the endpoint exists; lives as long as it does
    <incarnation>.group-<epoch>    what peers of that epoch write and read
    <incarnation>.a2e-<epoch>-<domain>    the same between attention and expert dies
    <incarnation>.ring-<peer>-<line>    what that p2p peer writes
    <incarnation>.application-<n>  a region of the application, which peers may read
    <incarnation>.experts-<epoch>-<version>    weights that peers of that epoch fetch to take up that placement

A peer that sees these files maps them; one that does not, being on another host, reaches the same memory over TCP if
both endpoints have a network. Since every operation is one-sided on the owner's memory, it does not matter if one
direction goes this way and the other that way.

A group has a segment an epoch, so that a slow member of an older epoch can only write where nobody looks any more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from itertools import count
from mmap import mmap
from pathlib import Path
from typing import Final, Self, TypeAlias

import numpy as np

from xccl import shm, tcp_memory, uri
from xccl.errors import BadSegment, Broken, PeerLost, StaleEpoch
from xccl.faults import Faults
from xccl.faults_memory import FaultyMemory, FaultySegment
from xccl.layout import HEADER_BYTES, SKEW_BYTES, Layout, page_up
from xccl.liveness import Liveness, Watch, in_proc
from xccl.paths import Cores
from xccl.region import Reference, Region, region_name
from xccl.shm import Segment
from xccl.steps import Steps
from xccl.tcp_link import Link
from xccl.tcp_listener import Listener
from xccl.tcp_memory import TcpSegment
from xccl.tcp_sockets import Network
from xccl.uri import HostPort, Location, Peer

_HOME: Final = "endpoint"
_FLUSH_SECONDS: Final = 0.5

Reached: TypeAlias = Segment | TcpSegment | FaultySegment
"""A peer's segment: mapped, over TCP, or either behind a link whose faults are injected."""


class Endpoint:
    """This process' die memory. Use `create`; `close` it, or let `shm.sweep` find it after a crash."""

    def __init__(
        self,
        directory: Path,
        incarnation: str,
        layout: Layout,
        network: Network | None,
        faults: Faults | None,
        liveness: Liveness,
        clock: Callable[[], float],
    ) -> None:
        self.directory = directory
        self.incarnation = incarnation
        self.layout = layout
        self._network = network
        self._faults = faults
        self._liveness = liveness
        self._clock = clock
        self._pid = os.getpid()
        self._links: dict[str, Link] = {}
        self._segments: dict[str, Segment] = {}
        self._claimed: set[str] = set()
        self.cores: Final = Cores()
        self.regions: dict[int, Region] = {}
        self.region_buffers: dict[int, mmap] = {}
        self._region_numbers = count()
        self._epoch = -1
        self._joined = -1
        self._listener = Listener(network, incarnation, self._segments.get) if network else None
        try:
            self.own(_HOME, HEADER_BYTES)
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(
        cls,
        directory: str | Path,
        incarnation: str,
        layout: Layout,
        *,
        network: Network | None = None,
        faults: Faults | None = None,
        liveness: Liveness = in_proc,
        clock: Callable[[], float] = time.monotonic,
    ) -> Self:
        """Make the endpoint's memory in `directory` (normally under /dev/shm), which is made if missing.

        With a `network` the endpoint also listens for peers of other hosts; with `faults` its links may be disturbed.
        Raises ValueError for an incarnation that is no plain name, FileExistsError for one that is in use, OSError for
        an address that cannot be had.
        """
        if not uri.INCARNATION.fullmatch(incarnation):
            raise ValueError(f"incarnation {incarnation!r} must be 1 to 63 letters, digits, '-' or '_'")
        path = Path(directory).absolute()
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return cls(path, incarnation, layout, network, faults, liveness, clock)

    @property
    def uri(self) -> str:
        return str(Location(self.directory, self.incarnation, self._listener.address if self._listener else None))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection, close and remove every segment; a forked child's call does nothing. Idempotent.

        What was written to peers over TCP arrives before they learn of it, unless they take longer than half a second.
        """
        if os.getpid() != self._pid:
            return
        for link in self._links.values():
            link.flush(_FLUSH_SECONDS)
        for segment in self._segments.values():
            segment.close()
        if self._listener is not None:
            self._listener.close()
        for link in self._links.values():
            link.close()

    def own(self, name: str, nbytes: int) -> Segment:
        """This endpoint's segment called `name`, made at the first call."""
        if name not in self._segments:
            self._segments[name] = shm.create(self.directory, self.incarnation, name, self.layout, nbytes)
        return self._segments[name]

    def region(self, nbytes: int) -> Region:
        """A new application region with room for `nbytes`. Raises OSError. xDeepServe, "application region"."""
        number = next(self._region_numbers)
        total = HEADER_BYTES + page_up(SKEW_BYTES + nbytes)
        segment = self.own(region_name(number), total)
        region = Region(number, segment, lambda: self._forget(number))
        self.regions[number] = region
        assert isinstance(segment.memory.buffer, mmap)
        self.region_buffers[number] = segment.memory.buffer
        return region

    def reference(self, data: memoryview) -> Reference | None:
        """Where `data` lie in a region of this endpoint, if they do."""
        if not self.regions:
            return None
        address = np.frombuffer(data, np.uint8).ctypes.data
        found = (region.reference(address, len(data)) for region in self.regions.values())
        return next((reference for reference in found if reference), None)

    def _forget(self, number: int) -> None:
        self.regions.pop(number, None)
        self.region_buffers.pop(number, None)
        self._segments.pop(region_name(number), None)

    def discard(self, name: str) -> None:
        """Close and forget the own segment called `name`, if there is one: its memory goes with its last user."""
        if (segment := self._segments.pop(name, None)) is not None:
            segment.close()

    def enter(self, epoch: int) -> Segment:
        """The own group segment of `epoch`; those of earlier epochs are closed. Raises StaleEpoch."""
        if epoch < self._epoch or epoch == self._joined:
            raise StaleEpoch(f"epoch {epoch} is not newer than {max(self._epoch, self._joined)}; wait for the next")
        if epoch > self._epoch >= 0:
            self._segments.pop(group_name(self._epoch)).close()
        self._epoch = epoch
        return self.own(group_name(epoch), self.layout.group_bytes)

    def joined(self, epoch: int) -> None:
        """Record that `epoch` is in use: it cannot be entered again."""
        self._joined = epoch

    def claim(self, name: str) -> None:
        """Take segment `name` into use, once. Raises Broken at the second time."""
        if name in self._claimed:
            raise Broken(f"{self.incarnation}.{name} was in use before; a connection is made once, keep it")
        self._claimed.add(name)

    def connect(self, peer: Peer, name: str, nbytes: int) -> Steps[Reached]:
        """Reach the peer's segment called `name` as soon as it is there: mapped if its files are seen, else over TCP.

        Raises PeerLost when the peer's endpoint is not there or dies, PeerRestarted, LinkBroken, NotAuthentic;
        BadSegment, LayoutMismatch.
        """
        if self._faults is None:
            return (yield from self._reach(peer, name, nbytes))
        link = self._faults.link(peer.incarnation)
        yield from link.starts(peer.rank)
        segment = yield from self._reach(peer, name, nbytes)
        return FaultySegment(segment, link, peer.rank, FaultyMemory(segment.memory, link, peer.rank))

    def watch(self, peers: Sequence[tuple[int, Reached]]) -> Watch:
        """Looks after `peers`, given as (rank, segment), in this endpoint's way."""
        return Watch(peers, self._liveness, self._clock)

    def _reach(self, peer: Peer, name: str, nbytes: int) -> Steps[Segment | TcpSegment]:
        location = uri.parse(peer.uri)
        if location is None or location.incarnation != peer.incarnation:
            raise BadSegment(f"rank {peer.rank}: {peer.uri!r} is not the URI of {peer.incarnation!r}")
        if location.directory == self.directory:
            home = shm.attach(self.directory, peer.incarnation, _HOME, self.layout, HEADER_BYTES)
            if home is not None:
                return (yield from self._map(peer, home, name, nbytes))
        if location.tcp is not None and self._network is not None:
            return (yield from self._dial(peer, location.tcp, self._network, name, nbytes))
        if location.directory == self.directory:
            raise PeerLost(peer.rank, f"there is no endpoint at {peer.uri}")
        raise BadSegment(
            f"rank {peer.rank}: {peer.uri} is not in {self.directory}, and there is no network between the two; "
            "peers must see the same directory, or both must have a network"
        )

    def _map(self, peer: Peer, home: Segment, name: str, nbytes: int) -> Steps[Segment]:
        watch = self.watch([(peer.rank, home)])
        gone: PeerLost | None = None
        fresh = True
        while (segment := shm.attach(self.directory, peer.incarnation, name, self.layout, nbytes)) is None:
            if gone is not None:
                raise gone
            gone = watch.lost()
            yield fresh
            fresh = False
        return segment

    def _dial(self, peer: Peer, address: HostPort, network: Network, name: str, nbytes: int) -> Steps[TcpSegment]:
        link = self._links.get(peer.incarnation)
        if link is None or link.failure is not None:
            link = yield from Link.open(address, network, self.incarnation, peer.incarnation, peer.rank)
            self._links[peer.incarnation] = link
        fresh = True
        while True:
            segment = yield from tcp_memory.find(link, peer, name, self.layout, nbytes)
            if segment is not None:
                return segment
            yield fresh
            fresh = False


def group_name(epoch: int) -> str:
    """The name of an epoch's group segment."""
    return f"group-{epoch}"


def a2e_name(epoch: int, domain: int) -> str:
    """The name of the segment of an epoch's A2E and E2A with one domain."""
    return f"a2e-{epoch}-{domain}"


def experts_name(epoch: int, version: int) -> str:
    """The name of the segment of weights that an epoch's change to that placement moves."""
    return f"experts-{epoch}-{version}"


def ring_name(sender: str, line: int) -> str:
    """The name of the segment into which the incarnation `sender` sends by that line."""
    return f"ring-{sender}-{line}"
