"""Where KV lies while a decode engine reads it: application regions, from which XCCL needs no copy into a ring.

A sequence's blocks lie apart, and may be kept in INT8; what travels is one array of float32 rows. It is gathered
straight into a region and read there by the receiver, one copy on either side. Regions are used again, since fresh
pages cost more than the copy; while nothing is sent, the largest one is kept. A transfer that fails gives its region
up, so that a receiver that comes too late never finds another's KV there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from flowserve.model import FloatArray
from xccl import Endpoint, Region

SMALLEST = 64 * 1024


class Staging:
    """The regions of one engine."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._idle: list[_Room] = []

    @contextmanager
    def rows(self, shape: tuple[int, ...]) -> Iterator[FloatArray]:
        """f32 of that shape with any contents, for one transfer."""
        room = self._room(4 * math.prod(shape))
        try:
            yield room.octets[: 4 * math.prod(shape)].view(np.float32).reshape(shape)
        except BaseException:
            room.region.close()
            raise
        self._idle.append(room)
        for smaller in sorted(self._idle, key=len)[:-1]:
            self._idle.remove(smaller)
            smaller.region.close()

    def _room(self, nbytes: int) -> _Room:
        for room in self._idle:
            if len(room) >= nbytes:
                self._idle.remove(room)
                return room
        return _Room(self._endpoint, max(SMALLEST, 1 << (nbytes - 1).bit_length()))


class _Room:
    """A region that is one array. Its pages are touched as they are first used."""

    def __init__(self, endpoint: Endpoint, nbytes: int) -> None:
        self.region: Region = endpoint.region(nbytes)
        self.octets: npt.NDArray[np.uint8] = self.region.empty(nbytes)

    def __len__(self) -> int:
        return len(self.octets)
