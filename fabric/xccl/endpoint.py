"""One process' die: the segments it owns, and how it finds those of its peers.

An endpoint is known by its incarnation, which is new with every process, and by its URI,
`shm://<directory>/<incarnation>`. Its segments are files of that directory:

    <incarnation>.endpoint         says that the endpoint exists; lives as long as it does
    <incarnation>.group-<epoch>    what peers of that epoch write and read
    <incarnation>.ring-<peer>      what that p2p peer writes

A group has a segment an epoch, so that a slow member of an older epoch can only write where nobody looks any more.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from xccl import shm
from xccl.errors import BadSegment, Broken, PeerLost, StaleEpoch
from xccl.layout import HEADER_BYTES, Layout
from xccl.liveness import Liveness, Watch, in_proc
from xccl.shm import Segment
from xccl.steps import Steps

_INCARNATION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_HOME: Final = "endpoint"


@dataclass(frozen=True)
class Peer:
    """Another endpoint, as membership names it: its rank in the group (0 where there is none), who, and where."""

    rank: int
    incarnation: str
    uri: str


class Endpoint:
    """This process' die memory. Use `create`; `close` it, or let `shm.sweep` find it after a crash."""

    def __init__(
        self, directory: Path, incarnation: str, layout: Layout, liveness: Liveness, clock: Callable[[], float]
    ) -> None:
        self.directory = directory
        self.incarnation = incarnation
        self.layout = layout
        self._liveness = liveness
        self._clock = clock
        self._segments: dict[str, Segment] = {}
        self._claimed: set[str] = set()
        self._epoch = -1
        self._joined = -1
        self.own(_HOME, HEADER_BYTES)

    @classmethod
    def create(
        cls,
        directory: str | Path,
        incarnation: str,
        layout: Layout,
        *,
        liveness: Liveness = in_proc,
        clock: Callable[[], float] = time.monotonic,
    ) -> Self:
        """Make the endpoint's memory in `directory` (normally under /dev/shm), which is made if missing.

        Raises ValueError for an incarnation that is no plain name, FileExistsError for one that is in use.
        """
        if not _INCARNATION.fullmatch(incarnation):
            raise ValueError(f"incarnation {incarnation!r} must be 1 to 63 letters, digits, '-' or '_'")
        path = Path(directory).absolute()
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return cls(path, incarnation, layout, liveness, clock)

    @property
    def uri(self) -> str:
        return f"shm://{self.directory}/{self.incarnation}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close and remove every segment; a forked child's call does nothing. Idempotent."""
        for segment in self._segments.values():
            segment.close()

    def own(self, name: str, nbytes: int) -> Segment:
        """This endpoint's segment called `name`, made at the first call."""
        if name not in self._segments:
            self._segments[name] = shm.create(self.directory, self.incarnation, name, self.layout, nbytes)
        return self._segments[name]

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

    def connect(self, peer: Peer, name: str, nbytes: int) -> Steps[Segment]:
        """Map the peer's segment called `name` as soon as it is there.

        Raises PeerLost when the peer's endpoint is not there or dies; BadSegment, LayoutMismatch.
        """
        directory = self._directory_of(peer)
        home = shm.attach(directory, peer.incarnation, _HOME, self.layout, HEADER_BYTES)
        if home is None:
            raise PeerLost(peer.rank, f"there is no endpoint at {peer.uri}")
        watch = self.watch([(peer.rank, home)])
        gone: PeerLost | None = None
        fresh = True
        while (segment := shm.attach(directory, peer.incarnation, name, self.layout, nbytes)) is None:
            if gone is not None:
                raise gone
            gone = watch.lost()
            yield fresh
            fresh = False
        return segment

    def watch(self, peers: Sequence[tuple[int, Segment]]) -> Watch:
        """Looks after `peers`, given as (rank, segment), in this endpoint's way."""
        return Watch(peers, self._liveness, self._clock)

    def _directory_of(self, peer: Peer) -> Path:
        if not _INCARNATION.fullmatch(peer.incarnation) or peer.uri != f"shm://{self.directory}/{peer.incarnation}":
            raise BadSegment(
                f"rank {peer.rank}: {peer.uri!r} is not shm://{self.directory}/{peer.incarnation}; peers over "
                "shared memory must see the same directory"
            )
        return self.directory


def group_name(epoch: int) -> str:
    """The name of an epoch's group segment."""
    return f"group-{epoch}"


def ring_name(sender: str) -> str:
    """The name of the segment into which the incarnation `sender` sends."""
    return f"ring-{sender}"
