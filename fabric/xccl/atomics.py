"""Aligned 8-byte words that order the memory around them: what publishing rests on.

`load` acquires: what the writer of the word wrote before it is visible to later reads. `store` releases: whoever
loads the word sees every earlier write. `add` does both, and is atomic among processes.

Two implementations, one contract:

* `_native.Words`, compiled C11 atomics, wherever the package was built with a C compiler. The processor's own
  instructions: mov and lock xadd on x86; ldar, stlr and ldaddal on ARM.
* `InterpretedWords`, when it was not. An item of a memoryview cast to `Q` is moved with one machine access, never
  bytewise, and the compiler cannot move accesses across the interpreter's calls, so only the processor matters. On
  x86 (TSO) stores become visible in program order and loads are not reordered with loads. Elsewhere a fence stands
  before the store and after the load: taking and giving back a lock twice is one, since the release that ends the
  first turn is a store-release L, the acquire that begins the second is a load-acquire A, and the ARM memory model
  orders everything before L before A (`po; [L]`, `[L]; po; [A]`) and A before everything after it (`[A]; po`).
  `add` is the C run-time's (libatomic).
"""

from __future__ import annotations

import ctypes
import platform
import threading
from functools import cache
from mmap import mmap
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xccl.errors import Unsupported

try:
    from xccl import _native
except ImportError:  # built without a C compiler
    _native = None  # type: ignore[assignment]

NATIVE: Final = _native is not None
STRONG_ORDER: Final = platform.machine().lower() in {"x86_64", "amd64"}
Offsets: TypeAlias = NDArray[np.int64]

_ACQUIRE_RELEASE: Final = 4  # __ATOMIC_ACQ_REL
_gate: Final = threading.Lock()


class Words(Protocol):
    """The words of a writable buffer, by byte offset. Raises IndexError for an offset that is no word of it."""

    def load(self, offset: int, /) -> int: ...

    def store(self, offset: int, value: int, /) -> None: ...

    def add(self, offset: int, value: int, /) -> int:
        """Add modulo 2**64; the word before."""

    def add_each(self, offsets: Offsets, value: int, /) -> None:
        """`add` to every word of `offsets` (C-contiguous int64)."""

    def read(self, offset: int, into: Any, /) -> None:
        """Fill a writable buffer with the bytes at `offset`."""

    def write(self, offset: int, data: Any, /) -> None:
        """Copy the bytes of a buffer to `offset`, in the way that suits a reader on another core."""


class Fields(Protocol):
    """Metadata fields (see `field`) of a buffer, each in one call."""

    def publish(self, offset: int, word: int, first: int, second: int, /) -> None: ...

    def field(self, offset: int, word: int, /) -> tuple[int, int] | None:
        """The payload published with `word`; None if it is not there, or not in order."""


def words_over(buffer: mmap | bytearray) -> Words:
    """The words of `buffer`, in the best way there is here."""
    return InterpretedWords(buffer) if _native is None else _native.Words(buffer)


def fields_over(words: Words) -> Fields | None:
    """The fields of the same buffer, where compiled code knows them."""
    return words if _native is not None and isinstance(words, _native.Words) else None


def gathered_sum(
    memories: tuple[mmap | bytearray | memoryview, ...],
    out: NDArray[np.float32],
    which: NDArray[np.int64],
    offsets: NDArray[np.int64],
    weights: NDArray[np.float32],
) -> None:
    """out[t] = Σ_k weights[t, k] · row(t, k), f32[T, H], in the order of k; only where there is compiled code.

    row(t, k) lies at offsets[t, k] bytes of memories[which[t, k]]. The result is NumPy's, bit for bit.
    """
    assert _native is not None
    _native.weighted_sum(memories, out, which, offsets, weights)


class InterpretedWords:
    """`Words` without compiled code."""

    def __init__(self, buffer: mmap | bytearray, *, fenced: bool = not STRONG_ORDER) -> None:
        self._bytes = memoryview(buffer).cast("B")
        self._words = self._bytes.cast("Q")
        self._fenced = fenced

    def load(self, offset: int, /) -> int:
        value: int = self._words[_index(offset)]
        if self._fenced:
            fence()
        return value

    def store(self, offset: int, value: int, /) -> None:
        if self._fenced:
            fence()
        self._words[_index(offset)] = value

    def add(self, offset: int, value: int, /) -> int:
        word = ctypes.c_uint64.from_buffer(self._words, _index(offset) * 8)
        before: int = _fetch_add()(ctypes.byref(word), value, _ACQUIRE_RELEASE)
        return before

    def add_each(self, offsets: Offsets, value: int, /) -> None:
        for offset in offsets.tolist():
            self.add(offset, value)

    def read(self, offset: int, into: Any, /) -> None:
        target = memoryview(into).cast("B")
        if offset < 0 or offset + len(target) > len(self._bytes):
            raise IndexError(f"there are no {len(target)} bytes at offset {offset} of {len(self._bytes)}")
        target[:] = self._bytes[offset : offset + len(target)]

    def write(self, offset: int, data: Any, /) -> None:
        source = memoryview(data).cast("B")
        if offset < 0 or offset + len(source) > len(self._bytes):
            raise IndexError(f"{len(source)} bytes at offset {offset} do not fit into {len(self._bytes)}")
        self._bytes[offset : offset + len(source)] = source


def _index(offset: int) -> int:
    if offset < 0 or offset % 8:
        raise IndexError(f"offset {offset} is no word")
    return offset >> 3


def fence() -> None:
    """Order every access before the call before every access after it, on any processor."""
    with _gate:
        pass
    with _gate:
        pass


@cache
def _fetch_add() -> Any:
    try:
        function = ctypes.CDLL("libatomic.so.1").__atomic_fetch_add_8
    except OSError as error:
        raise Unsupported(
            "atomic add needs the compiled part of xccl or libatomic.so.1; install with a C compiler at hand, or "
            "use dispatch and combine instead of their fused variants"
        ) from error
    function.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int]
    function.restype = ctypes.c_uint64
    return function
