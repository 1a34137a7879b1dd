"""An exclusive lock between processes, held through an open file.

The kernel drops an `flock` when its holder dies, so a crash never leaves a stale lock. The holder may remove the
locked file (taking a cluster down removes its whole directory): whoever waited then holds a lock on a file
that no path leads to, notices it, and starts again with a new file.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(path: Path, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock named by `path` inside the `with` block, waiting for it as long as it takes.

    `on_wait` is called with the holder's process id, as text, before every wait.
    """
    descriptor = _acquire(path, on_wait)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _acquire(path: Path, on_wait: Callable[[str], None]) -> int:
    while True:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:  # the directory was removed in between
            continue
        try:
            _lock(descriptor, on_wait)
            if _is_same_file(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _lock(descriptor: int, on_wait: Callable[[str], None]) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        on_wait(os.pread(descriptor, 32, 0).decode() or "unknown")
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
