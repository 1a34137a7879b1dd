"""Settings of the TCP sockets on both sides of a connection."""

from __future__ import annotations

import socket
from typing import Final

RECEIVE_BYTES: Final = 64 * 1024

_UNANSWERED_MILLISECONDS: Final = 5000  # a host that acknowledges nothing for so long cannot be reached
_KEEPALIVE: Final = {socket.TCP_KEEPIDLE: 2, socket.TCP_KEEPINTVL: 1, socket.TCP_KEEPCNT: 3}


def prepare(connection: socket.socket) -> None:
    """Neither wait nor hold small frames back, and notice a host that has vanished."""
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNANSWERED_MILLISECONDS)
    for option, value in _KEEPALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
