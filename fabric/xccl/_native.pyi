from mmap import mmap
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from xccl.memory import Buffer

DECLINED: Final[int]
PARTIAL: Final[int]
UNACKNOWLEDGED: Final[int]

@final
class Words:
    def __init__(self, buffer: object, /) -> None: ...
    def load(self, offset: int, /) -> int: ...
    def store(self, offset: int, value: int, /) -> None: ...
    def add(self, offset: int, value: int, /) -> int: ...
    def add_each(self, offsets: NDArray[np.int64], value: int, /) -> None: ...
    def read(self, offset: int, into: Buffer, /) -> None: ...
    def write(self, offset: int, data: Buffer, /) -> None: ...
    def publish(self, offset: int, word: int, first: int, second: int, /) -> None: ...
    def field(self, offset: int, word: int, /) -> tuple[int, int] | None: ...

@final
class RingEnd:
    def __init__(
        self,
        own: object,
        remote: object,
        counters: memoryview,
        acknowledged: int,
        fields: int,
        field_stride: int,
        payload: int,
        slots: int,
        slot_bytes: int,
        most_contended: int,
        /,
    ) -> None: ...
    def send(self, data: Buffer, event: int, most: int, resume: bool, /) -> int: ...
    def receive(self, into: Buffer, event: int, resume: bool, /) -> int: ...
    def send_reference(self, data: Buffer, event: int, regions: dict[int, mmap], least: int, /) -> int: ...
    def know_region(self, number: int, buffer: mmap | bytearray, closed: int, /) -> None: ...

def weighted_sum(
    memories: tuple[object, ...],
    out: NDArray[np.float32],
    which: NDArray[np.int64],
    offsets: NDArray[np.int64],
    weights: NDArray[np.float32],
    /,
) -> None: ...
