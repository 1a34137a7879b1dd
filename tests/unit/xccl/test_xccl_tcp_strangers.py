"""Who is let in over TCP: strangers, replays, broken frames and silent callers harm nothing."""

from __future__ import annotations

import socket
import struct
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from xccl_tcp_world import CLOSED_WITHIN, SECRET, segment_of
from xccl_world import SMALL, interleave, join, peer_of

from xccl import (
    Endpoint,
    LinkBroken,
    Network,
    NotAuthentic,
    Peer,
    run,
)
from xccl import tcp_auth as auth
from xccl.layout import HEADER_BYTES
from xccl.tcp_auth import Claim
from xccl.tcp_frames import LENGTH, MAX_FRAME, find_frame


def test_another_secret_is_not_let_in_and_the_owner_goes_on(pair: list[Endpoint], tmp_path: Path) -> None:
    groups = join(pair, epoch=1)
    with (
        Endpoint.create(tmp_path, "stranger", SMALL, network=Network(bytes(32))) as stranger,
        pytest.raises(NotAuthentic),
    ):
        run(stranger.connect(peer_of(pair[1]), "group-1", SMALL.group_bytes), timeout=10)
    assert interleave([group.vote(1) for group in groups]) == [(1, 1)] * 2


def test_a_listener_without_the_secret_is_not_believed(pair: list[Endpoint]) -> None:
    """It greets well, and answers with a verdict that it cannot sign."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = server.getsockname()[1]
        connecting = pair[0].connect(
            Peer(1, "die-1", f"shm:///nowhere/die-1?tcp=127.0.0.1:{port}"), "group-1", SMALL.group_bytes
        )
        next(connecting)
        accepted, _ = server.accept()
        with accepted:
            accepted.sendall(auth.greeting())
            accepted.sendall(
                auth.verdict(bytes(32), bytes(auth.GREETING_BYTES), bytes(auth.CLAIM_BYTES), auth.Verdict.WELCOME)
            )
            with pytest.raises(NotAuthentic, match="does not hold the group's secret"):
                run(connecting, timeout=10)


def dial(endpoint: Endpoint) -> socket.socket:
    host, _, port = endpoint.uri.rpartition("=")[2].rpartition(":")
    return socket.create_connection((host, int(port)), timeout=CLOSED_WITHIN)


def log_in(endpoint: Endpoint) -> socket.socket:
    """A raw connection of somebody who holds the secret."""
    connection = dial(endpoint)
    greeting = connection.recv(auth.GREETING_BYTES, socket.MSG_WAITALL)
    claim = auth.claim(SECRET, greeting, Claim("hacker", endpoint.incarnation))
    assert claim is not None
    connection.sendall(claim)
    verdict = connection.recv(auth.VERDICT_BYTES, socket.MSG_WAITALL)
    assert auth.verify_verdict(SECRET, greeting, claim, verdict) == auth.Verdict.WELCOME
    return connection


def is_closed(connection: socket.socket) -> bool:
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def operation(kind: int, segment: int, offset: int, argument: int, payload: bytes = b"") -> bytes:
    return struct.pack("<BxxxIQQ", kind, segment, offset, argument) + payload


def framed(body: bytes) -> bytes:
    return LENGTH.pack(len(body)) + body


LOAD, STORE, ADD, READ, WRITE, FIND = range(1, 7)


@pytest.mark.parametrize(
    "message",
    [
        LENGTH.pack(MAX_FRAME + 1),
        LENGTH.pack(0),
        framed(b"short"),
        framed(operation(99, 1, HEADER_BYTES, 0)),
        framed(operation(LOAD, 2, HEADER_BYTES, 0)),
        framed(operation(LOAD, 0, HEADER_BYTES, 0)),
        framed(operation(LOAD, 1, 2**64 - 8, 0)),
        framed(operation(LOAD, 1, HEADER_BYTES + 4, 0)),
        framed(operation(STORE, 1, 0, 1)),
        framed(operation(ADD, 1, 1024, 1)),
        framed(operation(READ, 1, HEADER_BYTES, 2**60)),
        framed(operation(READ, 1, SMALL.ring_bytes - 4, 8)),
        framed(operation(WRITE, 1, HEADER_BYTES, 9, b"too short")[:-1]),
        framed(operation(WRITE, 1, HEADER_BYTES, 2**60, b"x")),
        framed(operation(WRITE, 1, 4095, 2, b"xx")),
        framed(operation(WRITE, 1, SMALL.ring_bytes - 1, 2, b"xx")),
        framed(operation(FIND, 0, 0, 0)),
        framed(operation(FIND, 0, 0, 256, b"n" * 256)),
        framed(b"".join(operation(READ, 1, HEADER_BYTES, MAX_FRAME // 4) for _ in range(5))),
    ],
)
def test_a_frame_that_does_not_fit_ends_its_connection_and_harms_nothing(pair: list[Endpoint], message: bytes) -> None:
    segment = segment_of(pair)
    before = bytes(pair[1].own("ring-die-0", 0).memory.buffer)
    with log_in(pair[1]) as connection:
        connection.sendall(find_frame("ring-die-0"))
        assert connection.recv(12, socket.MSG_WAITALL) == framed((1).to_bytes(8, "little"))
        connection.sendall(message)
        assert is_closed(connection)
    assert bytes(pair[1].own("ring-die-0", 0).memory.buffer) == before
    assert run(segment.memory.load(HEADER_BYTES), timeout=10) == 0


def test_a_frame_is_carried_out_whole_or_not_at_all(pair: list[Endpoint]) -> None:
    segment_of(pair)
    with log_in(pair[1]) as connection:
        connection.sendall(find_frame("ring-die-0"))
        connection.recv(12, socket.MSG_WAITALL)
        connection.sendall(framed(operation(STORE, 1, HEADER_BYTES, 7) + operation(STORE, 1, 0, 7)))
        assert is_closed(connection)
    assert pair[1].own("ring-die-0", 0).memory.peek(HEADER_BYTES) == 0


@pytest.mark.parametrize("message", [b"GET / HTTP/1.1\r\n\r\n" + bytes(300), bytes(auth.CLAIM_BYTES)])
def test_a_stranger_is_hung_up_on(pair: list[Endpoint], message: bytes) -> None:
    groups = join(pair, epoch=1)
    with dial(pair[1]) as connection:
        connection.sendall(message)
        assert is_closed(connection)
    assert interleave([group.vote(1) for group in groups]) == [(1, 1)] * 2


def test_a_recorded_claim_is_worth_nothing(pair: list[Endpoint]) -> None:
    with dial(pair[1]) as first:
        claim = auth.claim(SECRET, first.recv(auth.GREETING_BYTES, socket.MSG_WAITALL), Claim("a", "die-1"))
        assert claim is not None
        first.sendall(claim)
        assert len(first.recv(auth.VERDICT_BYTES, socket.MSG_WAITALL)) == auth.VERDICT_BYTES
    with dial(pair[1]) as second:
        second.sendall(claim)
        assert is_closed(second)


def test_silent_strangers_give_way(pair: list[Endpoint], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xccl.tcp_listener.MAX_STRANGERS", 3)
    with ExitStack() as stack:
        silent = [stack.enter_context(dial(pair[1])) for _ in range(4)]
        assert is_closed(silent[0])
        assert segment_of(pair)


def test_a_stranger_has_its_time(pair: list[Endpoint], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xccl.tcp_listener.AUTHENTICATION_SECONDS", 0.05)
    began = time.monotonic()
    with dial(pair[1]) as silent:
        assert is_closed(silent)
    assert time.monotonic() - began < CLOSED_WITHIN


def test_a_caller_that_asks_and_does_not_listen_costs_no_memory(pair: list[Endpoint]) -> None:
    """The listener stops taking its questions; others are served."""
    segment = segment_of(pair)
    question = framed(operation(READ, 1, HEADER_BYTES, 256))
    with log_in(pair[1]) as connection:
        connection.sendall(find_frame("ring-die-0"))
        connection.recv(12, socket.MSG_WAITALL)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.sendall(question * (64 * MAX_FRAME // len(question)))
        assert run(segment.memory.load(HEADER_BYTES), timeout=10) == 0


def test_an_answer_out_of_turn_breaks_the_link(pair: list[Endpoint]) -> None:
    segment = segment_of(pair)
    link = segment.link
    link._incoming += framed(b"nobody asked")
    link._take_frame()
    with pytest.raises(LinkBroken, match="out of turn"):
        run(segment.memory.load(HEADER_BYTES), timeout=10)
