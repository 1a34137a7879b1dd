"""Application regions: memory of a die that belongs to the application and that peers may read.

A region is a segment of its own, so that it can be given back; what peers have mapped stays valid until they let
it go. Data that lie in a region can be sent without a copy into a ring (`paths`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from xccl.layout import HEADER_BYTES, SKEW_BYTES, page_up
from xccl.shm import Segment


def region_name(number: int) -> str:
    """The name of an endpoint's region."""
    return f"application-{number}"


@dataclass(frozen=True)
class Reference:
    """Bytes in a region of `region_bytes` bytes (its header included), by their offset from its start."""

    number: int
    region_bytes: int
    offset: int
    nbytes: int


class Region:
    """Use `Endpoint.region`. `close` it when no message from it is under way."""

    def __init__(self, number: int, segment: Segment, on_close: Callable[[], None]) -> None:
        self.number = number
        self._segment = segment
        self._on_close = on_close
        self._bytes = np.frombuffer(segment.memory.buffer, np.uint8)
        self._address: int = self._bytes.ctypes.data
        self._used = HEADER_BYTES

    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike = np.uint8) -> NDArray[Any]:
        """An array in what is left of the region, zeroed if that was never used. Raises ValueError when it is full."""
        kind = np.dtype(dtype)
        nbytes = math.prod((shape,) if isinstance(shape, int) else shape) * kind.itemsize
        begin = page_up(self._used) + SKEW_BYTES
        if begin + nbytes > self._bytes.nbytes:
            free = max(0, self._bytes.nbytes - begin)
            raise ValueError(f"{nbytes} bytes do not fit: {free} of the region's {self._bytes.nbytes} are left")
        self._used = begin + nbytes
        return self._bytes[begin : begin + nbytes].view(kind).reshape(shape)

    def reference(self, address: int, nbytes: int) -> Reference | None:
        """Where the bytes at `address` of this process lie in the region, if they do."""
        offset = address - self._address
        if offset < HEADER_BYTES or offset + nbytes > self._bytes.nbytes:
            return None
        return Reference(self.number, self._bytes.nbytes, offset, nbytes)

    def close(self) -> None:
        """Give the region back: it can no longer be sent from. Idempotent."""
        if not self._segment.closed:
            self._segment.close()
            self._on_close()
