"""Who owns a segment, and whether that process still lives.

A process is named by pid and start time, since pids are used again. A pid means something only inside its
pid namespace; for an owner in another one the answer is "unknown", and only timeouts find its death.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from xccl.errors import PeerLost

_DEAD_STATES: Final = frozenset("ZXx")  # a zombie runs no more, whether or not its parent has noticed


@dataclass(frozen=True)
class Owner:
    """A process: `start` in clock ticks since boot, `namespace` the inode of its pid namespace."""

    pid: int
    start: int
    namespace: int


Liveness: TypeAlias = Callable[[Owner], bool | None]
"""True: runs. False: gone. None: cannot be known from here, so that only timeouts and the closed flag tell."""


def this_process() -> Owner:
    """The calling process."""
    stat = _stat(os.getpid())
    return Owner(os.getpid(), stat[1] if stat else 0, _namespace())


def in_proc(owner: Owner) -> bool | None:
    """Liveness from /proc."""
    if owner.namespace != _namespace():
        return None
    stat = _stat(owner.pid)
    return stat is not None and stat[0] not in _DEAD_STATES and stat[1] == owner.start


def _stat(pid: int) -> tuple[str, int] | None:
    """State letter and start time; None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            after_name = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return after_name[0].decode(), int(after_name[19])


def _namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


class Watched(Protocol):
    """A peer's segment, as far as its owner's life is concerned."""

    @property
    def owner(self) -> Owner: ...

    @property
    def failure(self) -> PeerLost | None: ...

    @property
    def closed(self) -> bool: ...


class Watch:
    """Looks after the peers of one group or channel while it waits: at most once in `interval` seconds.

    Dead processes and failed links are reported before closed segments: a peer that closes often does so because it
    saw a death.
    """

    def __init__(
        self,
        peers: Sequence[tuple[int, Watched]],
        liveness: Liveness,
        clock: Callable[[], float],
        interval: float = 0.05,
    ) -> None:
        self._peers = peers
        self._liveness = liveness
        self._clock = clock
        self._interval = interval
        self._next = clock() + interval

    def lost(self) -> PeerLost | None:
        """The first peer that is gone, if it is time to look and one is."""
        now = self._clock()
        if now < self._next:
            return None
        self._next = now + self._interval
        return self.look()

    def look(self) -> PeerLost | None:
        """The first peer that is gone, whenever it is asked."""
        for rank, peer in self._peers:
            if self._liveness(peer.owner) is False:
                return PeerLost(rank, f"its process (pid {peer.owner.pid}) is gone")
            if (failure := peer.failure) is not None:
                return failure
        for rank, peer in self._peers:
            if peer.closed:
                return PeerLost(rank, "it has closed its memory")
        return None
