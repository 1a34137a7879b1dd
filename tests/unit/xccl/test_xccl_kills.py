"""kill -9 in each of the eight steps of send and receive, and all along the fused operators."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xccl_world import SMALL, TIMEOUT, exit_status, fork, meet, peers_in

from xccl import Channel, Endpoint, Group, PeerLost, Steps, run, sweep
from xccl.memory import MappedMemory

MESSAGE = bytes(range(100))  # two chunks: each takes six accesses to send, and six to receive


def die_at(steps: Steps[Any], access: int) -> None:
    """Be killed before the access of that number, or when the steps have ended."""
    MappedMemory.before_access = (True,)  # in this process alone, which ends here
    with contextlib.suppress(StopIteration):
        for _ in range(access):
            next(steps)
    os.kill(os.getpid(), signal.SIGKILL)


def die(directory: Path, body: Callable[[Endpoint], None]) -> int:
    def child() -> None:
        body(Endpoint.create(directory, "die-1", SMALL))

    return fork(child)


def connected(endpoint: Endpoint, directory: Path, rank: int) -> Channel:
    meet(directory, rank, 2)
    return run(Channel.connect(endpoint, peers_in(directory, 2)[1 - rank]), timeout=TIMEOUT)


def survive(pid: int, directory: Path, act: Callable[[Endpoint], None]) -> None:
    """`act` must find the death of `pid` at once; what the dead process owned is swept."""
    with Endpoint.create(directory, "die-0", SMALL) as endpoint:
        began = time.monotonic()
        with pytest.raises(PeerLost, match=r"pid \d+\) is gone"):
            act(endpoint)
        assert time.monotonic() - began < 5
    assert exit_status(pid) == -signal.SIGKILL
    assert all(path.name.startswith("die-1.") for path in sweep(directory))


@pytest.mark.parametrize("access", range(1, 15))
def test_a_sender_killed_at_any_access(directory: Path, access: int) -> None:
    pid = die(directory, lambda endpoint: die_at(connected(endpoint, directory, 1).send(MESSAGE, event=1), access))

    def receive(endpoint: Endpoint) -> None:
        channel = connected(endpoint, directory, 0)
        into = bytearray(200)
        for event in (1, 2):  # what was published whole may still arrive
            nbytes = channel.receive_now(into, event=event, timeout=TIMEOUT)
            assert (event, bytes(into[:nbytes])) == (1, MESSAGE)

    survive(pid, directory, receive)


@pytest.mark.parametrize("access", range(1, 15))
def test_a_receiver_killed_at_any_access(directory: Path, access: int) -> None:
    pid = die(
        directory, lambda endpoint: die_at(connected(endpoint, directory, 1).receive(bytearray(200), event=1), access)
    )

    def send(endpoint: Endpoint) -> None:
        channel = connected(endpoint, directory, 0)
        for event in range(1, 9):  # slots that the dead receiver holds are never given back
            channel.send_now(MESSAGE, event=event, timeout=TIMEOUT)

    survive(pid, directory, send)


@pytest.mark.parametrize("access", [1, 4, 9, 14, 18, 22, 27, 33, 40])
def test_a_rank_killed_in_the_fused_operators(directory: Path, access: int) -> None:
    owner = np.array([0, 1], np.int32)
    x, ids = np.ones((2, SMALL.hidden), np.float32), np.array([[0, 1], [1, 0]], np.int32)
    weights = np.full((2, 2), 0.5, np.float32)

    def rounds(group: Group) -> Steps[None]:
        for _ in range(3):
            pushed = yield from group.fused_dispatch(x, ids, owner)
            combined = yield from group.fused_combine(2 * pushed.tokens, pushed, weights)
            assert (combined == 2).all()

    def joined(endpoint: Endpoint, rank: int) -> Group:
        meet(directory, rank, 2)
        return run(Group.join(endpoint, epoch=1, rank=rank, peers=peers_in(directory, 2)), timeout=TIMEOUT)

    pid = die(directory, lambda endpoint: die_at(rounds(joined(endpoint, 1)), access))
    survive(pid, directory, lambda endpoint: run(rounds(joined(endpoint, 0)), timeout=TIMEOUT))
