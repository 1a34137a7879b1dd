"""The settings of an endpoint's network, and of the sockets on both sides of a connection."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import Final

from xccl.tcp_auth import MIN_SECRET_BYTES

RECEIVE_BYTES: Final = 64 * 1024

_KEEPALIVE: Final = {socket.TCP_KEEPIDLE: 2, socket.TCP_KEEPINTVL: 1, socket.TCP_KEEPCNT: 3}


@dataclass(frozen=True)
class Network:
    """How an endpoint takes part in a group over TCP: where it listens, and the secret that the group shares.

    host: an IP address, loopback unless peers are elsewhere; port 0 lets the system choose; silence: seconds for which
    a host may acknowledge nothing before the link to it counts as broken. Raises ValueError.
    """

    secret: bytes = field(repr=False)
    host: str = "127.0.0.1"
    port: int = 0
    silence: float = 5.0

    def __post_init__(self) -> None:
        if len(self.secret) < MIN_SECRET_BYTES:
            raise ValueError(f"the group's secret has {len(self.secret)} bytes, at least {MIN_SECRET_BYTES} are needed")


def prepare(connection: socket.socket, silence: float) -> None:
    """Neither wait nor hold small frames back; give up a host that acknowledges nothing for `silence` seconds."""
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * silence))
    for option, value in _KEEPALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
