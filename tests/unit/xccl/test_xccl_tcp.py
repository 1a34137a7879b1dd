"""Endpoints that do not see each other's files: the same protocols over TCP."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from xccl_tcp_world import CLOSED_WITHIN, NETWORK, ROOMY, hosts, segment_of
from xccl_world import SMALL, exit_status, fork, interleave, join, peer_of

from xccl import (
    BadSegment,
    Channel,
    Dispatched,
    Endpoint,
    Group,
    LayoutMismatch,
    Network,
    Peer,
    PeerLost,
    PeerRestarted,
    StaleEpoch,
    Steps,
    Timeout,
    run,
)
from xccl.layout import HEADER_BYTES
from xccl.memory import MappedMemory
from xccl.operations import Add, Load, Operation, Read, Store, Write, batch
from xccl.routing import Floats
from xccl.tcp_frames import PIECE
from xccl.tcp_link import Link


def test_one_sided_operations_reach_the_owners_memory() -> None:
    with hosts(2, ROOMY) as pair:
        segment = segment_of(pair)
        own = pair[1].own("ring-die-0", ROOMY.ring_bytes).memory
        memory, begin = segment.memory, HEADER_BYTES
        run(memory.store(begin, 2**64 - 1), timeout=10)
        assert run(memory.load(begin), timeout=10) == own.peek(begin) == 2**64 - 1
        assert run(memory.add(begin, 3), timeout=10) == 2**64 - 1
        assert own.peek(begin) == 2
        data = secrets.token_bytes(2 * PIECE + 77)  # more than fits a frame
        into = bytearray(len(data))
        run(memory.write(begin + 8, data), timeout=10)
        run(memory.read(begin + 8, into), timeout=10)
        assert into == data


def test_rows_are_gathered_and_scattered(pair: list[Endpoint]) -> None:
    memory, begin = segment_of(pair).memory, HEADER_BYTES + 64
    data = np.arange(6, dtype=np.int16).reshape(3, 2)
    run(memory.write_rows(begin, np.array([4, 0, 2]), data), timeout=10)
    run(memory.load(HEADER_BYTES), timeout=10)  # what went before has arrived
    own = np.frombuffer(pair[1].own("ring-die-0", 0).memory.buffer, np.int16, 10, begin).reshape(5, 2)
    assert own.tolist() == [[2, 3], [0, 0], [4, 5], [0, 0], [0, 1]]
    into = np.empty((2, 2), np.int16)
    run(memory.read_rows(begin, np.array([2, 4]), into), timeout=10)
    assert into.tolist() == [[4, 5], [0, 1]]
    words = np.empty(2, np.int16)
    run(memory.read_rows(begin, np.array([5, 0]), words), timeout=10)
    assert words.tolist() == [5, 2]


def test_words_are_counted_up_together(pair: list[Endpoint]) -> None:
    memory, offsets = segment_of(pair).memory, HEADER_BYTES + 8 * np.array([0, 3, 0])
    run(memory.add_each(offsets, 5), timeout=10)
    own = pair[1].own("ring-die-0", 0).memory
    assert [own.peek(HEADER_BYTES + 8 * i) for i in range(4)] == [10, 0, 0, 5]


def test_a_batch_is_carried_out_in_order(pair: list[Endpoint]) -> None:
    memory, begin, into = segment_of(pair).memory, HEADER_BYTES, bytearray(8)
    operations: list[Operation] = [
        Store(begin, 5),
        Add(begin, 2),
        Load(begin),
        Write(begin + 8, b"abcdefgh"),
        Read(begin + 8, into),
        Load(begin + 16),
    ]
    assert run(batch(memory, operations), timeout=10) == [5, 7, 0]
    assert into == b"abcdefgh"


def test_a_reader_that_gives_up_disturbs_nobody(pair: list[Endpoint], monkeypatch: pytest.MonkeyPatch) -> None:
    memory, into = segment_of(pair).memory, bytearray(8)
    run(memory.store(HEADER_BYTES, 7), timeout=10)
    with monkeypatch.context() as patch:
        patch.setattr(Link, "pump", lambda link: None)
        abandoned = memory.read(HEADER_BYTES, into)
        next(abandoned)
        abandoned.close()
    assert run(memory.load(HEADER_BYTES), timeout=10) == 7
    assert into == bytes(8)


def test_p2p_over_tcp_both_ways(pair: list[Endpoint]) -> None:
    a, b = interleave([Channel.connect(pair[0], peer_of(pair[1])), Channel.connect(pair[1], peer_of(pair[0]))])
    data = [np.arange(1000.0), np.arange(1000.0) * 2]
    into = [np.empty(1000), np.empty(1000)]
    interleave(
        [a.send(data[0], event=1), a.receive(into[0], event=1), b.send(data[1], event=1), b.receive(into[1], event=1)]
    )
    assert np.array_equal(into[0], data[1])
    assert np.array_equal(into[1], data[0])


def test_a_group_over_tcp_computes_what_one_over_shared_memory_does() -> None:
    owner = np.array([0, 1, 2], np.int32)

    def layer(group: Group, rank: int) -> Steps[Floats]:
        rng = np.random.default_rng(rank)
        x = rng.standard_normal((rank * 2, SMALL.hidden)).astype(np.float32)
        ids = rng.integers(0, 3, (rank * 2, 2))
        yield from group.vote(rank)
        dispatched = yield from group.dispatch(x, ids, owner)
        y = dispatched.tokens * (dispatched.experts[:, np.newaxis] + 1).astype(np.float32)
        return (yield from group.combine(y, dispatched, rng.random((rank * 2, 2), np.float32)))

    with hosts(3) as made, TemporaryDirectory(dir="/dev/shm") as common, ExitStack() as stack:
        near = [stack.enter_context(Endpoint.create(common, f"near-{i}", SMALL)) for i in range(3)]
        far, close = (interleave([layer(g, g.rank) for g in join(endpoints, epoch=1)]) for endpoints in (made, near))
        assert all(np.array_equal(f, c) for f, c in zip(far, close, strict=True))


def test_hosts_of_both_kinds_meet_in_one_group() -> None:
    """Two endpoints share a directory and map each other; the third is reached over TCP."""
    with TemporaryDirectory(dir="/dev/shm") as common, hosts(1) as (far,), ExitStack() as stack:
        near = [stack.enter_context(Endpoint.create(common, f"near-{i}", SMALL, network=NETWORK)) for i in range(2)]
        groups = join([*near, far], epoch=1)
        assert [len(endpoint._links) for endpoint in [*near, far]] == [1, 1, 2]
        assert interleave([group.vote(group.rank + 5) for group in groups]) == [(5, 6, 7)] * 3


def test_a_later_epoch_uses_the_same_link_and_leaves_the_old_memory(pair: list[Endpoint]) -> None:
    first = join(pair, epoch=1)
    links = [endpoint._links.copy() for endpoint in pair]
    second = join(pair, epoch=2)
    assert [endpoint._links for endpoint in pair] == links
    assert interleave([group.vote(1) for group in second]) == [(1, 1)] * 2
    stale = first[0]._protocol._memories[1]
    run(stale.write(HEADER_BYTES, b"anything"), timeout=10)  # nobody looks there any more
    assert interleave([group.vote(2) for group in second]) == [(2, 2)] * 2
    with pytest.raises(StaleEpoch):
        join(pair, epoch=1)


def test_a_peer_that_leaves_is_noticed(pair: list[Endpoint]) -> None:
    groups = join(pair, epoch=1)
    groups[1].leave()
    with pytest.raises(PeerLost, match="rank 1: it has closed its memory"):
        run(groups[0].vote(1), timeout=10)


def test_what_was_written_arrives_before_its_writer_ends(pair: list[Endpoint]) -> None:
    """Even if the owner is so busy that its listener has no turn in between."""
    segment = segment_of(pair)
    for number in range(200):
        next(segment.memory.batch([Store(HEADER_BYTES + 8 * number, number + 1)]), None)
    pair[0].close()
    own = pair[1].own("ring-die-0", 0).memory
    assert [own.peek(HEADER_BYTES + 8 * number) for number in range(200)] == list(range(1, 201))


def test_a_peer_that_hangs_does_not_hold_up_the_end(pair: list[Endpoint], monkeypatch: pytest.MonkeyPatch) -> None:
    segment_of(pair)
    monkeypatch.setattr("xccl.tcp_conversation.Conversation.work", lambda conversation: False)
    began = time.monotonic()
    pair[0].close()
    assert time.monotonic() - began < CLOSED_WITHIN


def test_a_peer_that_ends_is_noticed(pair: list[Endpoint]) -> None:
    groups = join(pair, epoch=1)
    pair[1].close()
    with pytest.raises(PeerLost, match="rank 1"):
        run(groups[0].vote(1), timeout=10)


@pytest.mark.parametrize("step", [1, 5, 9, 14])
def test_a_peer_killed_in_the_middle_of_a_dispatch_is_noticed_at_once(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither sees the other's files or processes; the connection tells."""
    wires = socket.socketpair()

    def die(rank: int) -> Endpoint:
        return Endpoint.create(tmp_path / str(rank), f"die-{rank}", SMALL, network=NETWORK)

    def meet(endpoint: Endpoint, rank: int) -> Group:
        wires[rank].sendall(endpoint.uri.encode())
        peers = [peer_of(endpoint, rank), Peer(1 - rank, f"die-{1 - rank}", wires[rank].recv(4096).decode())]
        return run(Group.join(endpoint, epoch=1, rank=rank, peers=peers), timeout=10)

    def dispatch_one(group: Group) -> Steps[Dispatched]:
        return group.dispatch(np.ones((1, SMALL.hidden), np.float32), np.zeros((1, 1), np.int32), np.arange(2))

    def victim() -> None:
        group = meet(die(1), 1)
        monkeypatch.setattr(MappedMemory, "before_access", (True,))
        steps = dispatch_one(group)
        for _ in range(step):
            next(steps)
        os.kill(os.getpid(), signal.SIGKILL)

    def survive(endpoint: Endpoint) -> None:
        group = meet(endpoint, 0)
        run(dispatch_one(group), timeout=10)
        run(group.vote(1), timeout=10)  # where the victim had published everything, this finds it

    pid = fork(victim)
    with wires[0], wires[1], die(0) as endpoint, pytest.raises(PeerLost, match="rank 1"):
        survive(endpoint)
    assert exit_status(pid) == -signal.SIGKILL


def test_a_peer_that_is_not_there_is_lost(pair: list[Endpoint]) -> None:
    peer = peer_of(pair[1], rank=1)
    pair[1].close()
    with pytest.raises(PeerLost, match="rank 1: nobody listens"):
        run(pair[0].connect(peer, "group-1", SMALL.group_bytes), timeout=10)


def test_a_successor_at_the_same_address_is_a_restarted_peer(pair: list[Endpoint], tmp_path: Path) -> None:
    peer = peer_of(pair[1], rank=1)
    port = int(peer.uri.rpartition(":")[2])
    pair[1].close()
    with (
        Endpoint.create(tmp_path, "die-2", SMALL, network=replace(NETWORK, port=port)),
        pytest.raises(PeerRestarted, match="die-1 is gone"),
    ):
        run(pair[0].connect(peer, "group-1", SMALL.group_bytes), timeout=10)


def test_another_layout_is_refused(pair: list[Endpoint]) -> None:
    pair[1].own("ring-die-0", pair[1].layout.ring_bytes)
    pair[0].layout = replace(SMALL, ring_slots=4)
    with pytest.raises(LayoutMismatch):
        run(pair[0].connect(peer_of(pair[1]), "ring-die-0", SMALL.ring_bytes), timeout=10)


def test_a_segment_that_is_not_there_yet_is_waited_for(pair: list[Endpoint]) -> None:
    connecting = pair[0].connect(peer_of(pair[1]), "group-3", SMALL.group_bytes)
    with pytest.raises(Timeout):
        run(connecting, timeout=0.05)
    pair[1].enter(3)
    assert run(pair[0].connect(peer_of(pair[1]), "group-3", SMALL.group_bytes), timeout=10)


@pytest.mark.parametrize(
    "uri",
    [
        "shm:///nowhere/die-1?tcp=localhost:80",
        "shm:///nowhere/die-1?tcp=127.0.0.1:0",
        "shm:///nowhere/die-1?tcp=127.0.0.1:65536",
        "shm:///nowhere/die-1?tcp=999.0.0.1:80",
        "shm:///nowhere/die-1?tcp=127.0.0.1:80&x=1",
        "shm:///nowhere/../die-1?tcp=0127.0.0.1:80",
        "tcp://127.0.0.1:80/die-1",
        "shm:///nowhere/die-0?tcp=127.0.0.1:80",
    ],
)
def test_a_uri_that_makes_no_sense_is_refused(pair: list[Endpoint], uri: str) -> None:
    with pytest.raises(BadSegment, match="is not the URI of"):
        run(pair[0].connect(Peer(1, "die-1", uri), "group-1", SMALL.group_bytes), timeout=1)


def test_without_a_network_only_a_common_directory_will_do(pair: list[Endpoint], tmp_path: Path) -> None:
    with Endpoint.create(tmp_path, "alone", SMALL) as alone, pytest.raises(BadSegment, match="no network between"):
        run(alone.connect(peer_of(pair[1]), "group-1", SMALL.group_bytes), timeout=1)


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="15 bytes, at least 16"):
        Network(b"x" * 15)


def test_the_secret_is_not_shown() -> None:
    assert "secret" not in repr(NETWORK)
