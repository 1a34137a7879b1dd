"""The first page of a segment: what it is, whose it is, and how it is laid out.

Written once, before its magic word is published; afterwards only the closed flag (in a cache line of its own)
changes. `parse` takes the page from a file that anybody may have made and believes nothing in it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from xccl.errors import BadSegment, LayoutMismatch
from xccl.liveness import Owner

MAGIC: Final = 0x4C43_4358_5344_5801  # "\x01XDSXCCL" in memory order
MAGIC_OFFSET: Final = 0
CLOSED_OFFSET: Final = 1024
VERSION: Final = 2

_BODY_OFFSET: Final = 8
_BODY: Final = struct.Struct("=5Q64s80s6Q")
_END: Final = _BODY_OFFSET + _BODY.size


@dataclass(frozen=True)
class Header:
    """`name` is the segment's name inside its incarnation; `layout` the words of its Layout."""

    nbytes: int
    owner: Owner
    incarnation: str
    name: str
    layout: tuple[int, ...]

    def pack(self) -> bytes:
        """The page's bytes at `BODY`; the magic word is not among them."""
        owner = self.owner
        return _BODY.pack(
            VERSION,
            self.nbytes,
            owner.pid,
            owner.start,
            owner.namespace,
            self.incarnation.encode(),
            self.name.encode(),
            *self.layout,
        )

    def expect(self, incarnation: str, name: str, layout: tuple[int, ...], nbytes: int, where: str) -> None:
        """Raise BadSegment or LayoutMismatch unless this is what was looked for at `where`."""
        if (self.incarnation, self.name) != (incarnation, name):
            raise BadSegment(f"{where}: it calls itself {self.incarnation}.{self.name}")
        if self.layout != layout:
            raise LayoutMismatch(f"{where}: its layout is {self.layout}, ours is {layout}")
        if self.nbytes != nbytes:
            raise BadSegment(f"{where}: its header says {self.nbytes} bytes, its layout {nbytes}")


BODY: Final = slice(_BODY_OFFSET, _END)


def parse(page: bytes, where: str) -> Header | None:
    """The header in `page`, or None while its creator has not sized or published it. Raises BadSegment."""
    if not page:
        return None
    if len(page) < _END:
        raise BadSegment(f"{where}: {len(page)} bytes are too short for a segment's header")
    magic = int.from_bytes(page[:_BODY_OFFSET], "little")
    if magic == 0:
        return None
    if magic != MAGIC:
        raise BadSegment(f"{where}: not a segment (magic {magic:#x})")
    version, nbytes, pid, start, namespace, incarnation, name, *layout = _BODY.unpack(page[BODY])
    if version != VERSION:
        raise BadSegment(f"{where}: version {version} of the format, this library reads {VERSION}")
    try:
        return Header(
            nbytes=nbytes,
            owner=Owner(pid, start, namespace),
            incarnation=incarnation.rstrip(b"\0").decode(),
            name=name.rstrip(b"\0").decode(),
            layout=tuple(layout),
        )
    except UnicodeDecodeError as error:
        raise BadSegment(f"{where}: a name in the header is not UTF-8") from error
