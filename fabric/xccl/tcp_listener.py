"""The network side of an endpoint's memory: a thread that does for TCP peers what an NPU's DMA engine does.

Peers read and write the endpoint's segments while its own program computes, sleeps or hangs, so that operations stay
one-sided. The thread waits in the selector and costs nothing while nobody asks. A connection that misbehaves, or says
nothing for AUTHENTICATION_SECONDS before it has shown that it holds the secret, is closed; others do not notice.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from dataclasses import dataclass
from typing import Final

from xccl.tcp_conversation import Conversation, Find
from xccl.tcp_frames import Misbehaved
from xccl.tcp_sockets import RECEIVE_BYTES, Network, prepare
from xccl.uri import HostPort

AUTHENTICATION_SECONDS: Final = 5.0
MAX_STRANGERS: Final = 128  # connections that have not shown the secret; the oldest gives way
_BACKLOG: Final = 1024
_OUT_OF_FILES_SECONDS: Final = 0.05


@dataclass(eq=False)
class _Connection:
    socket: socket.socket
    conversation: Conversation
    deadline: float


class Listener:
    """Listens from its making to `close`. Raises OSError when the address cannot be had."""

    def __init__(self, network: Network, incarnation: str, find: Find) -> None:
        self._network = network
        self._incarnation = incarnation
        self._find = find
        family = socket.AF_INET6 if ":" in network.host else socket.AF_INET
        self._socket = socket.create_server((network.host, network.port), family=family, backlog=_BACKLOG)
        self._socket.setblocking(False)
        host, port = self._socket.getsockname()[:2]
        self.address: HostPort = (host, port)
        self._strangers: dict[_Connection, None] = {}
        self._closing, self._wake = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._selector.register(self._closing, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name=f"xccl-{incarnation}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End all connections. Idempotent."""
        self._wake.close()
        self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                for key, events in self._selector.select(self._patience()):
                    if key.fileobj is self._closing:
                        return
                    if key.fileobj is self._socket:
                        self._accept()
                    else:
                        self._serve(key.data, bool(events & selectors.EVENT_READ))
                self._dismiss_strangers()
        finally:
            for key in list(self._selector.get_map().values()):
                assert isinstance(key.fileobj, socket.socket)
                key.fileobj.close()
            self._selector.close()

    def _patience(self) -> float | None:
        """Seconds until the oldest stranger has had its time."""
        oldest = next(iter(self._strangers), None)
        return None if oldest is None else max(0.0, oldest.deadline - time.monotonic())

    def _accept(self) -> None:
        try:
            accepted, _ = self._socket.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError:  # no file descriptors left: whoever calls waits until some are
            time.sleep(_OUT_OF_FILES_SECONDS)
            return
        prepare(accepted, self._network.silence)
        conversation = Conversation(self._network.secret, self._incarnation, self._find)
        connection = _Connection(accepted, conversation, time.monotonic() + AUTHENTICATION_SECONDS)
        self._strangers[connection] = None
        self._selector.register(accepted, selectors.EVENT_WRITE, connection)
        if len(self._strangers) > MAX_STRANGERS:
            self._end(next(iter(self._strangers)))

    def _serve(self, connection: _Connection, readable: bool) -> None:
        conversation = connection.conversation
        if connection.socket.fileno() < 0:
            return  # ended while this event was under way
        try:
            if readable and conversation.hungry:
                data = connection.socket.recv(RECEIVE_BYTES)
                if not data:
                    self._end(connection)
                    return
                conversation.receive(data)
            while conversation.work() or conversation.outgoing:
                if conversation.outgoing:
                    sent = connection.socket.send(conversation.outgoing)
                    del conversation.outgoing[:sent]
        except BlockingIOError:
            pass  # the rest goes when the socket takes it
        except (OSError, Misbehaved):
            self._end(connection)
            return
        if conversation.caller is not None:
            self._strangers.pop(connection, None)
        reading = selectors.EVENT_READ if conversation.hungry else 0
        writing = selectors.EVENT_WRITE if conversation.outgoing else 0
        self._selector.modify(connection.socket, reading | writing, connection)

    def _dismiss_strangers(self) -> None:
        now = time.monotonic()
        while (oldest := next(iter(self._strangers), None)) is not None and oldest.deadline <= now:
            self._end(oldest)

    def _end(self, connection: _Connection) -> None:
        self._strangers.pop(connection, None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection.socket)
        connection.socket.close()
