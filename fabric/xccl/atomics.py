"""Aligned 8-byte loads and stores that order the memory around them.

A writer fills its payload, then calls `store_release` on the word that publishes it; a reader that sees that
word through `load_acquire` may read the payload. Both functions take a memoryview cast to `Q` over memory that
is at least 8-byte aligned; the interpreter moves such an item with one machine access, never bytewise.

Ordering. The compiler cannot move memory accesses across the interpreter's calls, so only the processor matters:

* x86 (TSO): stores become visible in program order, and loads are not reordered with loads. Plain accesses are
  enough; `memcpy` ends its non-temporal stores with a fence of its own.
* ARM and others: a fence stands before the store and after the load. Taking and giving back a lock twice is such
  a fence: the release that ends the first turn is a store-release L, the acquire that begins the second is a
  load-acquire A, and the ARM memory model orders everything before L before A (`po; [L]`, `[L]; po; [A]`) and A
  before everything after it (`[A]; po`).
"""

from __future__ import annotations

import platform
import threading
from typing import Final

STRONG_ORDER: Final = platform.machine().lower() in {"x86_64", "amd64"}

_gate: Final = threading.Lock()


def fence() -> None:
    """Order every access before the call before every access after it, on any processor."""
    with _gate:
        pass
    with _gate:
        pass


def _plain_load(words: memoryview, index: int) -> int:
    value: int = words[index]
    return value


def _plain_store(words: memoryview, index: int, value: int) -> None:
    words[index] = value


def _fenced_load(words: memoryview, index: int) -> int:
    value: int = words[index]
    fence()
    return value


def _fenced_store(words: memoryview, index: int, value: int) -> None:
    fence()
    words[index] = value


load_acquire: Final = _plain_load if STRONG_ORDER else _fenced_load
store_release: Final = _plain_store if STRONG_ORDER else _fenced_store
