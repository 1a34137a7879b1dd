"""Segments as files that processes of one host map: creating, attaching, closing, and sweeping after a crash.

* A file is created with O_EXCL and mode 0600, sized sparsely, and found by others only once its magic word is
  published, after everything else in the header.
* Attaching believes nothing: no symlink, a regular file of the same user, a header that names what was asked for,
  the same sizes of a group or ring, and the exact length; only then is it mapped.
* Only the process that created a file marks it closed and unlinks it, never a forked child. A mapping outlives
  both, so that a peer may finish reading what was published before.
* `sweep` removes the files of processes that are gone.
"""

from __future__ import annotations

import os
import re
import stat
import time
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import Final

from xccl import header as head
from xccl.errors import BadSegment, PeerLost
from xccl.header import Header
from xccl.layout import HEADER_BYTES, Layout
from xccl.liveness import Liveness, Owner, in_proc, this_process
from xccl.memory import MappedMemory

_FILE_NAME: Final = re.compile(
    r"[A-Za-z0-9_-]+\.(endpoint|application-\d+|experts-\d+-\d+|group-\d+|a2e-\d+-\d+|ring-[A-Za-z0-9_-]+)"
)
_UNFINISHED_SECONDS: Final = 60.0  # creating a file takes milliseconds


@dataclass(frozen=True)
class Segment:
    """A mapped segment file, this process' own or a peer's."""

    path: Path
    owner: Owner
    nbytes: int
    memory: MappedMemory

    @property
    def failure(self) -> PeerLost | None:
        """Shared memory does not fail apart from its owner."""
        return None

    @property
    def closed(self) -> bool:
        return self.memory.peek(head.CLOSED_OFFSET) != 0

    def close(self) -> None:
        """Tell peers that nothing more will come and remove the file; nothing happens unless this process made it.

        The mapping goes when the last reference to `memory` does.
        """
        if os.getpid() == self.owner.pid and not self.closed:
            self.memory.poke(head.CLOSED_OFFSET, 1)
            self.path.unlink(missing_ok=True)


def file_of(directory: Path, incarnation: str, name: str) -> Path:
    """Where segment `name` of `incarnation` lies."""
    return directory / f"{incarnation}.{name}"


def create(directory: Path, incarnation: str, name: str, layout: Layout, nbytes: int) -> Segment:
    """Make and map a zeroed segment. Raises FileExistsError when the name is taken."""
    path = file_of(directory, incarnation, name)
    header = Header(nbytes, this_process(), incarnation, name, layout.words_of(name))
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.ftruncate(file, nbytes)
        mapped = mmap(file, nbytes)
    except BaseException:
        path.unlink()
        raise
    finally:
        os.close(file)
    mapped[head.BODY] = header.pack()
    memory = MappedMemory(mapped)
    memory.poke(head.MAGIC_OFFSET, head.MAGIC)
    return Segment(path, header.owner, nbytes, memory)


def attach(directory: Path, incarnation: str, name: str, layout: Layout, nbytes: int) -> Segment | None:
    """Map a peer's segment, or return None while it is not there yet. Raises BadSegment, LayoutMismatch."""
    path = file_of(directory, incarnation, name)
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadSegment(f"{path}: cannot be opened: {error.strerror}") from error
    try:
        header = _checked_header(file, path)
        if header is None:
            return None
        header.expect(incarnation, name, layout.words_of(name), nbytes, str(path))
        if (size := os.fstat(file).st_size) != nbytes:
            raise BadSegment(f"{path}: {size} bytes, its header says {nbytes}")
        return Segment(path, header.owner, nbytes, MappedMemory(mmap(file, nbytes)))
    finally:
        os.close(file)


def sweep(directory: str | Path, *, liveness: Liveness = in_proc) -> list[Path]:
    """Remove what crashed processes left in `directory`, and return it.

    A file goes when its owner is known to be gone, or when its header was never finished and it is a minute old.
    Files that are not segments stay.
    """
    removed = []
    for path in sorted(Path(directory).iterdir()):
        if _FILE_NAME.fullmatch(path.name) and _abandoned(path, liveness):
            path.unlink(missing_ok=True)
            removed.append(path)
    return removed


def _abandoned(path: Path, liveness: Liveness) -> bool:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        header = _checked_header(file, path)
        if header is not None:
            return liveness(header.owner) is False
        return time.time() - os.fstat(file).st_mtime > _UNFINISHED_SECONDS
    except BadSegment:
        return False
    finally:
        os.close(file)


def _checked_header(file: int, path: Path) -> Header | None:
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        raise BadSegment(f"{path}: not a regular file")
    if status.st_uid != os.geteuid():
        raise BadSegment(f"{path}: belongs to user {status.st_uid}, not to user {os.geteuid()}")
    return head.parse(os.pread(file, HEADER_BYTES, 0), str(path))
