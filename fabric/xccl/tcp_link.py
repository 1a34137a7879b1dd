"""The TCP connection to one peer, from the side that asks: frames go out in order, answers come back in order.

All memory of a peer is reached over one link, so that what is written first arrives first. Nothing here blocks: `pump`
moves what the socket takes and gives at the moment, and whoever waits pumps, for itself and for all others. An answer
whose asker has given up is read and dropped; the link goes on.
"""

from __future__ import annotations

import errno
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Self

from xccl import tcp_auth as auth
from xccl.errors import LinkBroken, NotAuthentic, PeerLost, PeerRestarted
from xccl.steps import Steps
from xccl.tcp_auth import Claim, Verdict
from xccl.tcp_frames import LENGTH, find_frame
from xccl.tcp_sockets import RECEIVE_BYTES, Network, prepare
from xccl.uri import HostPort

_NO_SEGMENT: Final = "-"
_FLUSH_NAP: Final = 200e-6
_GONE: Final = {errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE}


@dataclass(eq=False)
class Answer:
    """What a frame will be answered with: where it goes, piece by piece; dropped when `targets` is empty."""

    nbytes: int
    targets: Sequence[memoryview]
    arrived: bool = False

    def give_up(self) -> None:
        self.targets = ()


@dataclass(frozen=True)
class Failure:
    """Why a link carries nothing any more."""

    kind: type[PeerLost]
    reason: str

    def of(self, rank: int) -> PeerLost:
        """As an error of whoever uses the link to reach `rank`."""
        return self.kind(rank, self.reason)


class Link:
    """An authenticated connection. Use `open`."""

    def __init__(self, connection: socket.socket, where: str) -> None:
        self._socket = connection
        self._where = where
        self._outgoing = bytearray()
        self._incoming = bytearray()
        self._expected: deque[Answer] = deque()
        self.posted = 0
        self.sent = 0
        self.failure: Failure | None = None

    @classmethod
    def open(cls, address: HostPort, network: Network, caller: str, wanted: str, rank: int) -> Steps[Self]:
        """Connect to the incarnation `wanted`, which is `rank`, at `address` as `caller`, an endpoint of `network`.

        Raises PeerLost when nobody listens, PeerRestarted when another incarnation does, NotAuthentic when the
        listener does not hold the secret, LinkBroken.
        """
        where = f"{address[0]}:{address[1]}"
        connection = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM)
        try:
            prepare(connection, network.silence)
            yield from _connect(connection, address, where, rank)
            yield from _authenticate(connection, network.secret, Claim(caller, wanted), where, rank)
        except OSError as error:
            connection.close()
            kind, reason = _meaning(error)
            raise kind(rank, f"{where}: {reason}") from error
        except BaseException:
            connection.close()
            raise
        return cls(connection, where)

    def close(self) -> None:
        self._fail(LinkBroken, "this side has closed the link")

    def flush(self, seconds: float) -> None:
        """Wait, for so long at most, until the peer has carried out whatever was sent."""
        until = time.monotonic() + seconds
        answer = self.post(find_frame(_NO_SEGMENT), [memoryview(bytearray(8))])
        assert answer is not None
        self.pump()
        while not answer.arrived and self.failure is None and time.monotonic() < until:
            time.sleep(_FLUSH_NAP)
            self.pump()

    def post(self, frame: bytes, targets: Sequence[memoryview]) -> Answer | None:
        """Queue a frame; returns its answer if it has results."""
        self._outgoing += frame
        self.posted += len(frame)
        if not targets:
            return None
        answer = Answer(sum(map(len, targets)), targets)
        self._expected.append(answer)
        return answer

    def wait(self, done: Callable[[], bool], rank: int) -> Steps[None]:
        """Pump until `done()`. Raises what `failure` says, about `rank`."""
        fresh = True
        while not done():
            self.pump()
            if done():
                return
            if self.failure is not None:
                raise self.failure.of(rank)
            yield fresh
            fresh = False

    def pump(self) -> None:
        """Move what can be moved now; an error ends the link and is kept in `failure`."""
        if self.failure is not None:
            return
        try:
            self._send()
            self._receive()
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail(*_meaning(error))

    def _send(self) -> None:
        try:
            while self._outgoing:
                sent = self._socket.send(self._outgoing)
                del self._outgoing[:sent]
                self.sent += sent
        except BlockingIOError:
            pass  # and yet there may be something to receive

    def _receive(self) -> None:
        while True:
            data = self._socket.recv(RECEIVE_BYTES)
            if not data:
                self._fail(PeerLost, "it has ended the connection")
                return
            self._incoming += data
            while self._take_frame():
                pass
            if self.failure is not None or len(data) < RECEIVE_BYTES:
                return

    def _take_frame(self) -> bool:
        if len(self._incoming) < LENGTH.size:
            return False
        length: int = LENGTH.unpack_from(self._incoming)[0]
        if not self._expected or length != self._expected[0].nbytes:
            self._fail(LinkBroken, f"an answer of {length} bytes came out of turn")
            return False
        end = LENGTH.size + length
        if len(self._incoming) < end:
            return False
        answer = self._expected.popleft()
        begin = LENGTH.size
        for target in answer.targets:
            target[:] = self._incoming[begin : begin + len(target)]
            begin += len(target)
        answer.arrived = True
        del self._incoming[:end]
        return True

    def _fail(self, kind: type[PeerLost], reason: str) -> None:
        if self.failure is None:
            self.failure = Failure(kind, f"{self._where}: {reason}")
            self._socket.close()
            self._outgoing.clear()
            self._incoming.clear()


def _connect(connection: socket.socket, address: HostPort, where: str, rank: int) -> Steps[None]:
    """A second `connect` tells how the first is getting on."""
    fresh = True
    while (number := connection.connect_ex(address)) not in (0, errno.EISCONN):
        if number == errno.ECONNREFUSED:
            raise PeerLost(rank, f"nobody listens at {where}")
        if number not in (errno.EINPROGRESS, errno.EALREADY):
            raise OSError(number, errno.errorcode.get(number, str(number)))
        yield fresh
        fresh = False


def _authenticate(connection: socket.socket, secret: bytes, who: Claim, where: str, rank: int) -> Steps[None]:
    greeting = yield from _exactly(connection, auth.GREETING_BYTES, where, rank)
    claim = auth.claim(secret, greeting, who)
    if claim is None:
        raise NotAuthentic(f"rank {rank}: whoever listens at {where} is no endpoint")
    connection.sendall(claim)  # a fresh connection takes so little at once
    verdict = yield from _exactly(connection, auth.VERDICT_BYTES, where, rank)
    match auth.verify_verdict(secret, greeting, claim, verdict):
        case Verdict.RESTARTED:
            raise PeerRestarted(rank, f"{who.wanted} is gone, another process listens at {where}")
        case None:
            raise NotAuthentic(f"rank {rank}: {where} does not hold the group's secret")


def _exactly(connection: socket.socket, nbytes: int, where: str, rank: int) -> Steps[bytes]:
    """The next bytes, before there are frames."""
    received = b""
    fresh = True
    while len(received) < nbytes:
        try:
            data = connection.recv(nbytes - len(received))
        except BlockingIOError:
            yield fresh
            fresh = False
            continue
        if not data:
            raise NotAuthentic(f"rank {rank}: {where} hung up when asked who it is; do both hold the same secret?")
        received += data
    return received


def _meaning(error: OSError) -> tuple[type[PeerLost], str]:
    """What an error of the connection says: the peer's host answers that nobody is there, or nothing comes at all."""
    if error.errno in _GONE:
        return PeerLost, f"its process is gone: {error.strerror}"
    return LinkBroken, f"nothing comes through: {error.strerror}"
