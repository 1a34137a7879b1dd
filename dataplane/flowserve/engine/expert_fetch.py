"""Weights of routed experts on their way from rank to rank, one-sided, while both go on serving.

A rank copies what its peers will want into a segment of its own and says so in the segment's first word; a peer maps
the segment, waits for that word and reads. Both know from the two placements what lies where, so nothing is asked for.
Copying goes in pieces on the engine's own loop, and each piece lets an iteration's turn come first.

    segment   header · word: 1 once all is there · one expert after the other, each tensor on a boundary of 64 B
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from flowserve.model.experts import Expert
from xccl import Endpoint, Peer, Steps, arun
from xccl.layout import HEADER_BYTES, page_up

Bytes = npt.NDArray[np.uint8]
PIECE_BYTES = 1 << 17  # 10 to 20 microseconds of copying
_BOUNDARY = 64
_WORD = HEADER_BYTES
_BODY = HEADER_BYTES + _BOUNDARY


def packed_bytes(expert: Expert) -> int:
    """What an expert takes in a segment or a staging buffer."""
    return sum(_rounded(tensor.nbytes) for tensor in expert.tensors)


async def publish(endpoint: Endpoint, name: str, experts: Sequence[Expert]) -> None:
    """Puts the experts, at least one, into the own segment ``name``; they stay until it is discarded."""
    nbytes = page_up(_BODY + sum(map(packed_bytes, experts)))
    memory = endpoint.own(name, nbytes).memory
    begin = _BODY
    for expert in experts:
        size = packed_bytes(expert)
        await _copy(_packed(expert), memory.view(begin, (size,), np.uint8))
        begin += size
    memory.poke(_WORD, 1)


class Source:
    """A peer's segment of experts whose sizes in it are ``sizes``. ``timeout`` in seconds, for each step."""

    def __init__(self, endpoint: Endpoint, peer: Peer, name: str, sizes: Sequence[int], timeout: float) -> None:
        self._endpoint = endpoint
        self._peer = peer
        self._name = name
        self._sizes = sizes
        self._timeout = timeout

    async def fetch(self, wanted: Sequence[int]) -> list[Bytes]:
        """The packed experts at these places. Raises XcclError: the peer is gone, late, or keeps experts in another
        form."""
        nbytes = page_up(_BODY + sum(self._sizes))
        reached = await arun(self._endpoint.connect(self._peer, self._name, nbytes), timeout=self._timeout)
        watch = self._endpoint.watch([(self._peer.rank, reached)])

        def published() -> Steps[None]:
            fresh = True
            while (yield from reached.memory.load(_WORD)) != 1:
                if (lost := watch.lost()) is not None:
                    raise lost
                yield fresh
                fresh = False

        await arun(published(), timeout=self._timeout)
        fetched = []
        for place in wanted:
            packed = np.empty(self._sizes[place], np.uint8)
            begin = _BODY + sum(self._sizes[:place])
            for piece in _pieces(len(packed)):
                await arun(reached.memory.read(begin + piece.start, packed[piece]), timeout=self._timeout)
                await asyncio.sleep(0)
            fetched.append(packed)
        return fetched


async def unpacked(packed: Bytes, like: Expert) -> Expert:
    """The expert of which ``packed`` are the bytes, of the same shapes and form as ``like``, in memory of its own."""
    tensors, begin = [], 0
    for model in like.tensors:
        tensor = np.empty(model.nbytes, np.uint8)
        await _copy([packed[begin : begin + model.nbytes]], tensor)
        tensors.append(tensor.view(model.dtype).reshape(model.shape))
        begin += _rounded(model.nbytes)
    return like.like(tensors)


def _packed(expert: Expert) -> Iterator[Bytes]:
    for tensor in expert.tensors:
        yield _octets(tensor)
        yield np.zeros(_rounded(tensor.nbytes) - tensor.nbytes, np.uint8)


async def _copy(parts: Iterator[Bytes] | list[Bytes], into: Bytes) -> None:
    begin = 0
    for part in parts:
        for piece in _pieces(len(part)):
            into[begin + piece.start : begin + piece.stop] = part[piece]
            await asyncio.sleep(0)
        begin += len(part)


def _pieces(nbytes: int) -> Iterator[slice]:
    return (slice(begin, min(begin + PIECE_BYTES, nbytes)) for begin in range(0, nbytes, PIECE_BYTES))


def _octets(tensor: npt.NDArray[Any]) -> Bytes:
    return np.ascontiguousarray(tensor).reshape(-1).view(np.uint8)


def _rounded(nbytes: int) -> int:
    return -(-nbytes // _BOUNDARY) * _BOUNDARY
