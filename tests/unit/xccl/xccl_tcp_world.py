"""Endpoints on different hosts, as far as their files are concerned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from tempfile import TemporaryDirectory

from xccl_world import SMALL, peer_of

from xccl import (
    Endpoint,
    Layout,
    Network,
    run,
)
from xccl.tcp_frames import PIECE
from xccl.tcp_memory import TcpSegment

SECRET = bytes(range(32))
NETWORK = Network(SECRET)
ROOMY = replace(SMALL, slot_bytes=4 * PIECE)
CLOSED_WITHIN = 5.0


@contextmanager
def hosts(number: int, layout: Layout = SMALL) -> Iterator[list[Endpoint]]:
    """Endpoints that see nothing of each other's directories."""
    with ExitStack() as stack:
        made = []
        for i in range(number):
            directory = stack.enter_context(TemporaryDirectory(dir="/dev/shm", prefix=f"xccl-host-{i}-"))
            made.append(stack.enter_context(Endpoint.create(directory, f"die-{i}", layout, network=NETWORK)))
        yield made


def segment_of(pair: list[Endpoint]) -> TcpSegment:
    """The ring of the second endpoint, as the first one reaches it."""
    pair[1].own("ring-die-0", pair[1].layout.ring_bytes)
    reached = run(pair[0].connect(peer_of(pair[1]), "ring-die-0", pair[0].layout.ring_bytes), timeout=10)
    assert isinstance(reached, TcpSegment)
    return reached
