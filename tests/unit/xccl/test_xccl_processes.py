"""Real processes: results, sudden death in the middle of a dispatch, and who may unlink what."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from xccl_world import SMALL, TIMEOUT, exit_status, fork, meet, peer_of, peers_in

from xccl import Channel, Endpoint, Group, PeerLost, run, sweep
from xccl.liveness import in_proc, this_process
from xccl.memory import MappedMemory
from xccl.shm import Segment

OWNER = np.array([0, 1, 2], np.int32)


def join(endpoint: Endpoint, directory: Path, rank: int, number: int) -> Group:
    meet(directory, rank, number)
    return run(Group.join(endpoint, epoch=1, rank=rank, peers=peers_in(directory, number)), timeout=TIMEOUT)


def layers(group: Group, rounds: int) -> None:
    """MoE layers whose experts double their tokens, checked on every rank."""
    rng = np.random.default_rng(group.rank)
    for round_ in range(rounds):
        assert run(group.vote(round_), timeout=TIMEOUT) == (round_,) * group.size
        tokens = (round_ + group.rank) % SMALL.max_tokens
        x = rng.standard_normal((tokens, SMALL.hidden)).astype(np.float32)
        ids = rng.integers(0, len(OWNER), (tokens, 2))
        dispatched = run(group.dispatch(x, ids, OWNER), timeout=TIMEOUT)
        weights = np.full((tokens, 2), 0.5, np.float32)
        assert np.array_equal(run(group.combine(2 * dispatched.tokens, dispatched, weights), timeout=TIMEOUT), 2 * x)


def test_three_processes_agree_over_many_layers(directory: Path) -> None:
    def rank(number: int) -> Callable[[], None]:
        def body() -> None:
            with Endpoint.create(directory, f"die-{number}", SMALL) as endpoint:
                layers(join(endpoint, directory, number, 3), rounds=100)

        return body

    children = [fork(rank(1)), fork(rank(2))]
    rank(0)()
    assert [exit_status(pid) for pid in children] == [0, 0]
    assert [path for path in directory.iterdir() if not path.name.startswith("ready-")] == []


def test_two_processes_move_a_megabyte_each_way(directory: Path) -> None:
    data = np.random.default_rng(0).integers(0, 255, 1 << 20, np.uint8)

    def side(me: int) -> None:
        with Endpoint.create(directory, f"die-{me}", SMALL) as endpoint:
            meet(directory, me, 2)
            channel = run(Channel.connect(endpoint, peers_in(directory, 2)[1 - me]), timeout=TIMEOUT)
            into = np.empty_like(data)
            for event in range(1, 3):
                if (event + me) % 2:
                    run(channel.send(data, event=event), timeout=TIMEOUT)
                else:
                    assert run(channel.receive(into, event=event), timeout=TIMEOUT) == data.nbytes
                    assert np.array_equal(into, data)

    child = fork(lambda: side(1))
    side(0)
    assert exit_status(child) == 0


@pytest.mark.parametrize("step", [1, 3, 6, 11, 15, 20])
def test_a_peer_killed_in_the_middle_of_a_dispatch_is_found_at_once(
    directory: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def victim() -> None:
        endpoint = Endpoint.create(directory, "die-1", SMALL)
        group = join(endpoint, directory, 1, 2)
        monkeypatch.setattr(MappedMemory, "before_access", (True,))
        steps = group.dispatch(np.ones((2, SMALL.hidden), np.float32), np.zeros((2, 1), np.int32), OWNER)
        for _ in range(step):
            next(steps)
        os.kill(os.getpid(), signal.SIGKILL)

    pid = fork(victim)
    with Endpoint.create(directory, "die-0", SMALL) as endpoint:
        group = join(endpoint, directory, 0, 2)
        began = time.monotonic()
        with pytest.raises(PeerLost, match=rf"rank 1: its process \(pid {pid}\) is gone"):
            layers(group, rounds=2)  # where the victim had published everything, the next collective finds it
        assert time.monotonic() - began < 2
    assert exit_status(pid) == -signal.SIGKILL  # it was a zombie until now
    assert [path.name for path in sweep(directory)] == ["die-1.endpoint", "die-1.group-1"]


def test_a_process_that_reuses_the_pid_is_not_taken_for_the_owner(directory: Path) -> None:
    me = this_process()
    assert in_proc(me) is True
    assert in_proc(replace(me, start=me.start + 1)) is False
    assert in_proc(replace(me, namespace=1)) is None


def test_a_forked_child_neither_unlinks_nor_closes(directory: Path) -> None:
    with Endpoint.create(directory, "die-0", SMALL) as endpoint:
        group = run(Group.join(endpoint, epoch=1, rank=0, peers=[peer_of(endpoint)]), timeout=TIMEOUT)

        def child() -> None:
            group.leave()
            endpoint.close()

        assert exit_status(fork(child)) == 0
        segments: list[Segment] = list(endpoint._segments.values())
        assert [(s.path.exists(), s.closed) for s in segments] == [(True, False)] * 2


def test_sweep_takes_only_what_dead_processes_left(directory: Path) -> None:
    def leave_without_closing() -> None:
        Endpoint.create(directory, "dead", SMALL)

    assert exit_status(fork(leave_without_closing)) == 0
    half_made = directory / "half.group-3"
    half_made.touch()
    young = directory / "young.endpoint"
    young.write_bytes(bytes(4096))
    os.utime(half_made, (1, 1))
    foreign = directory / "notes.txt"
    foreign.write_bytes(bytes(4096))
    os.utime(foreign, (1, 1))
    with Endpoint.create(directory, "alive", SMALL):
        assert sweep(directory, liveness=lambda owner: None) == [half_made]
        assert [path.name for path in sweep(directory)] == ["dead.endpoint"]
        assert sorted(path.name for path in directory.iterdir()) == ["alive.endpoint", "notes.txt", "young.endpoint"]
    young.unlink()
    foreign.unlink()
