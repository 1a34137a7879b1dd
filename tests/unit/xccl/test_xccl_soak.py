"""Dies that are killed at random, over shared memory and TCP at once: the others go on, and nothing is left behind.

Runs for a few seconds; XCCL_SOAK_SECONDS=600 makes it the soak that a release needs.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from xccl_world import SMALL, exit_status, fork

from xccl import Endpoint, Group, Network, Peer, XcclError, arun, sweep

SECONDS = float(os.environ.get("XCCL_SOAK_SECONDS", "2"))
RANKS = 4
LAYERS = 3  # verified in an epoch before its dies may die
PATIENCE = 30.0
NETWORK = Network(bytes(range(16)))
OWNER = np.arange(RANKS, dtype=np.int32)


async def work(endpoint: Endpoint, epoch: int, rank: int, peers: list[Peer], say: Callable[[str], None]) -> None:
    """MoE layers until somebody is lost; says when the epoch works and when it has broken."""
    try:
        group = await arun(Group.join(endpoint, epoch=epoch, rank=rank, peers=peers), timeout=PATIENCE)
        try:
            rng = np.random.default_rng(rank)
            for number in range(1_000_000):
                x = rng.standard_normal((number % SMALL.max_tokens, SMALL.hidden)).astype(np.float32)
                ids = rng.integers(0, RANKS, (len(x), 2))
                assert await arun(group.vote(number), timeout=PATIENCE) == (number,) * RANKS
                arrived = await arun(group.dispatch(x, ids, OWNER), timeout=PATIENCE)
                weights = np.full((len(x), 2), 0.5, np.float32)
                y = await arun(group.combine(2 * arrived.tokens, arrived, weights), timeout=PATIENCE)
                assert np.array_equal(y, 2 * x)
                if number == LAYERS:
                    say(f"works {epoch}")
        finally:
            group.leave()
    except XcclError as error:
        say(f"broken {epoch} {error.code}")


async def live(wire: socket.socket, directory: Path, incarnation: str) -> None:
    """Follow one membership after the other until told to stop."""
    reader, writer = await asyncio.open_connection(sock=wire)
    with Endpoint.create(directory, incarnation, SMALL, network=NETWORK) as endpoint:

        def say(line: str) -> None:
            writer.write(f"{line}\n".encode())

        say(endpoint.uri)
        current: asyncio.Task[None] | None = None
        while membership := json.loads(await reader.readline()):
            if current is not None:
                current.cancel()
                await asyncio.wait({current})
            sweep(endpoint.directory)
            peers = [Peer(rank, name, uri) for rank, (name, uri) in enumerate(membership["peers"])]
            rank = [peer.incarnation for peer in peers].index(incarnation)
            current = asyncio.create_task(work(endpoint, membership["epoch"], rank, peers, say))
        if current is not None:
            current.cancel()
            await asyncio.wait({current})
    writer.close()


class Die:
    """A forked process, and the wire to it."""

    def __init__(self, directory: Path, incarnation: str) -> None:
        self.incarnation = incarnation
        ours, theirs = socket.socketpair()

        def child() -> None:
            ours.close()
            asyncio.run(live(theirs, directory, incarnation))

        self.pid = fork(child, seconds=SECONDS + 2 * PATIENCE)
        theirs.close()
        ours.settimeout(PATIENCE)
        self._wire = ours
        self._lines = ours.makefile("r")
        self.uri = self.hears()

    def hears(self) -> str:
        """The next line; a die that hangs is a TimeoutError."""
        return self._lines.readline().strip()

    def tell(self, message: object) -> None:
        self._wire.sendall(json.dumps(message).encode() + b"\n")

    def hears_that(self, word: str, epoch: int) -> None:
        """Wait for `word` about `epoch`; what it still says of earlier ones does not matter."""
        while (line := self.hears().split())[1] != str(epoch) or line[0] != word:
            assert line[0] == "broken", line

    def end(self, number: signal.Signals | None = None) -> int:
        if number is None:
            self.tell(None)
        else:
            os.kill(self.pid, number)
        status = exit_status(self.pid)
        self._lines.close()
        self._wire.close()
        return status


def test_random_kills_leave_nothing_behind_and_nobody_hanging(tmp_path: Path) -> None:
    rng = random.Random(SECONDS)
    directories = [tmp_path / name for name in ("common", "common", "host-2", "host-3")]
    born = 0

    def spawn(rank: int) -> Die:
        nonlocal born
        born += 1
        return Die(directories[rank], f"die-{rank}-{born}")

    dies = [spawn(rank) for rank in range(RANKS)]
    with ExitStack() as stack:
        stack.callback(lambda: [die.end(signal.SIGKILL) for die in dies])
        epoch, until = 0, time.monotonic() + SECONDS
        while time.monotonic() < until or epoch < 3:
            epoch += 1
            peers = [(die.incarnation, die.uri) for die in dies]
            for die in dies:
                die.tell({"epoch": epoch, "peers": peers})
            for die in dies:
                die.hears_that("works", epoch)
            time.sleep(rng.random() / 50)
            victims = rng.sample(range(RANKS), rng.choice([1, 1, 2]))
            for rank in victims:
                assert dies[rank].end(signal.SIGKILL) == -signal.SIGKILL
            if rng.random() < 0.5:  # else the next membership comes before anybody has noticed
                for rank in set(range(RANKS)) - set(victims):
                    dies[rank].hears_that("broken", epoch)
            for rank in victims:
                dies[rank] = spawn(rank)
        assert [die.end() for die in dies] == [0] * RANKS
        stack.pop_all()
    for directory in set(directories):
        sweep(directory)
        assert list(directory.iterdir()) == []
