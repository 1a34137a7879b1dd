"""Several endpoints in one process, and ways to take turns among their steps."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from xccl import Endpoint, Group, Layout, Peer, Steps

T = TypeVar("T")

SMALL = Layout(max_peers=4, max_tokens=8, hidden=5, top_k=3, ring_slots=2, slot_bytes=64)

TIMEOUT = 20.0


def peer_of(endpoint: Endpoint, rank: int = 0) -> Peer:
    return Peer(rank, endpoint.incarnation, endpoint.uri)


def fork(child: Callable[[], None], seconds: float = 60) -> int:
    """Run `child` in a forked process, for so long at most; its exit status is 0 only if it returns."""
    pid = os.fork()
    if pid == 0:
        status = 1
        signal.setitimer(signal.ITIMER_REAL, seconds)  # whatever happens, it does not stay
        try:
            child()
            status = 0
        finally:
            os._exit(status)
    return pid


def exit_status(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def peers_in(directory: Path, number: int) -> list[Peer]:
    return [Peer(rank, f"die-{rank}", f"shm://{directory}/die-{rank}") for rank in range(number)]


def meet(directory: Path, rank: int, number: int) -> None:
    """Wait until the endpoints of all `number` processes are there, as whoever sends memberships does."""
    (directory / f"ready-{rank}").touch()
    deadline = time.monotonic() + TIMEOUT
    while len(list(directory.glob("ready-*"))) < number and time.monotonic() < deadline:
        os.sched_yield()


def interleave(steps: Sequence[Steps[T]], choose: Callable[[Sequence[int]], int] | None = None) -> list[T]:
    """Run all steps to their results, one step at a time: in turn, or as `choose` picks among those not done."""
    results: dict[int, T] = {}
    turn = 0
    while waiting := [i for i in range(len(steps)) if i not in results]:
        turn += 1
        assert turn < 1_000_000, f"steps {waiting} never finish"
        i = choose(waiting) if choose else waiting[turn % len(waiting)]
        try:
            next(steps[i])
        except StopIteration as stop:
            results[i] = stop.value
    return [results[i] for i in range(len(steps))]


def randomly(seed: int) -> Callable[[Sequence[int]], int]:
    return random.Random(seed).choice


@contextmanager
def endpoints(
    number: int, layout: Layout = SMALL, directory: Path | None = None, **how: Any
) -> Iterator[list[Endpoint]]:
    """`number` endpoints in one directory; whatever is left there afterwards is a failure."""
    with TemporaryDirectory(dir="/dev/shm", prefix="xccl-test-") as scratch:
        made = [Endpoint.create(directory or scratch, f"die-{i}", layout, **how) for i in range(number)]
        try:
            yield made
        finally:
            for endpoint in made:
                endpoint.close()
        assert not [path for e in made for path in e.directory.glob(f"{e.incarnation}.*")]


@contextmanager
def groups(number: int, layout: Layout = SMALL, **how: Any) -> Iterator[list[Group]]:
    """The ranks of one group, joined at epoch 1."""
    with endpoints(number, layout, **how) as made:
        yield join(made, epoch=1)


def join(made: Sequence[Endpoint], epoch: int) -> list[Group]:
    peers = [peer_of(endpoint, rank) for rank, endpoint in enumerate(made)]
    return interleave([Group.join(e, epoch=epoch, rank=r, peers=peers) for r, e in enumerate(made)])
