"""Waking a parked peer's event loop: a datagram that says "look at your memory".

A ring is only a hint. It may be lost, doubled or forged; the state in memory is the truth, so that whoever wakes
looks there, and whoever parks looks once more before it waits. Rings that arrive before `wait` are not lost: they
lie in the socket's buffer.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Final, Self, TypeAlias

Address: TypeAlias = tuple[str, int]
"""Host and UDP port."""

_RING: Final = b"\x01"


class Doorbell:
    """A UDP socket bound to `host`, normally the pod's address. Port 0 lets the system choose."""

    def __init__(self, host: str, port: int = 0) -> None:
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        try:
            self._socket.bind((host, port))
        except OSError:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def address(self) -> Address:
        host, port = self._socket.getsockname()[:2]
        return host, port

    def ring(self, address: Address) -> None:
        """Wake the doorbell at `address`; whether anybody listens there is not known."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            self._socket.sendto(_RING, address)

    async def wait(self) -> None:
        """Wait for a ring, and take all that have arrived as one."""
        while True:
            with contextlib.suppress(ConnectionError):  # an earlier ring of ours found nobody
                await asyncio.get_running_loop().sock_recv(self._socket, len(_RING))
                break
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while True:
                self._socket.recv(len(_RING))

    def close(self) -> None:
        self._socket.close()
