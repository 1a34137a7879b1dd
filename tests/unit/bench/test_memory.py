"""The memory of a pod: what processes map together counts once."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from xdeepserve_bench.memory import Mapping, mappings, memory

MIB = 2**20
SIZE = 128 * MIB
SMAPS = """\
7f00-7f08 r-xp 00001000 fe:00 4711                       /lib/libc.so.6
Size:                 32 kB
Rss:                  24 kB
Pss:                  12 kB
Anonymous:             8 kB
VmFlags: rd ex mr mw me
7f08-7f10 rw-p 00000000 00:00 0                          [heap]
Rss:                  16 kB
Pss:                   8 kB
Anonymous:            16 kB
"""


def test_what_smaps_says() -> None:
    assert list(mappings(SMAPS)) == [
        Mapping(("fe:00", "4711", "00001000"), rss=24, pss=12, anonymous=8),
        Mapping(("00:00", "0", "00000000"), rss=16, pss=8, anonymous=16),
    ]


# Maps a buffer, of the file if one is named, fills it and forks; both say that they have touched all of it.
PAIR = f"""
import mmap, os, signal, sys
descriptor, flags = (-1, mmap.MAP_PRIVATE) if not sys.argv[1] else (os.open(sys.argv[1], os.O_RDWR), mmap.MAP_SHARED)
buffer = mmap.mmap(descriptor, {SIZE}, flags=flags)
buffer.write(b"x" * {SIZE})
other = os.fork()
sum(buffer[::mmap.PAGESIZE])
os.write(1, b"%d\\n" % os.getpid())
signal.pause() if not other else os.waitpid(other, 0)
"""


@contextmanager
def pair(path: Path | None) -> Iterator[list[int]]:
    """Two processes that have the same pages: of the file at `path`, or private ones that a fork left shared."""
    command = [sys.executable, "-c", PAIR, str(path or "")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = [int(process.stdout.readline()) for _ in range(2)]
        try:
            yield pids
        finally:
            os.kill(next(pid for pid in pids if pid != process.pid), signal.SIGKILL)


@pytest.mark.parametrize("shared", [True, False], ids=["a file that both map", "pages that a fork left shared"])
def test_what_both_processes_have_counts_once(tmp_path: Path, shared: bool) -> None:
    path = tmp_path / "segment"
    path.write_bytes(bytes(SIZE))
    with pair(path if shared else None) as pids:
        found = memory(pids)
    assert found.resident > 2 * SIZE
    assert SIZE < found.alone < 1.5 * SIZE


def test_a_process_that_is_gone_counts_nothing() -> None:
    assert memory([2**22 + 1]) == memory([])
