"""One-sided operations as bytes: what travels over TCP between two endpoints that trust each other's names.

    request frame   length u32, then operations: kind u8, segment u32, offset u64, argument u64 [, payload]
    reply frame     length u32, then the results of the frame's operations, in order, nothing between them

A frame is a batch: its operations are carried out in order, and if one of them does not fit its segment, none is.
A frame without results (stores and writes) is not answered. A word result has 8 bytes, a read as many as it asked
for. FIND names a segment (payload) and answers the number that it has on this connection, 0 while it is not there.

Lengths are checked before anything is stored: no frame exceeds MAX_FRAME, no reply more than that is asked for.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from xccl.errors import XcclError
from xccl.memory import octets
from xccl.operations import Add, Load, Operation, Read, Store, Write

MAX_FRAME: Final = 256 * 1024
PIECE: Final = 128 * 1024  # a longer copy travels in several frames
MAX_NAME: Final = 255
LENGTH: Final = struct.Struct("<I")

_OPERATION: Final = struct.Struct("<BxxxIQQ")
_WORD: Final = struct.Struct("<Q")


class Misbehaved(XcclError):
    """A peer sent what no correct peer sends; its connection is closed."""

    code = "misbehaved"


class Kind(IntEnum):
    """An operation on the wire."""

    LOAD = 1
    STORE = 2
    ADD = 3
    READ = 4
    WRITE = 5
    FIND = 6


@dataclass(frozen=True)
class Request:
    """One operation of a received frame; `argument` is a value, or a number of bytes; `payload` lies in the frame."""

    kind: Kind
    segment: int
    offset: int
    argument: int
    payload: memoryview

    @property
    def result_bytes(self) -> int:
        match self.kind:
            case Kind.LOAD | Kind.ADD | Kind.FIND:
                return _WORD.size
            case Kind.READ:
                return self.argument
            case _:
                return 0


def pack_word(value: int) -> bytes:
    return _WORD.pack(value)


def unpack_word(result: bytes | bytearray | memoryview) -> int:
    value: int = _WORD.unpack(result)[0]
    return value


def find_frame(name: str) -> bytes:
    """The frame that asks for segment `name`; its one result is a word."""
    payload = name.encode()
    body = _OPERATION.pack(Kind.FIND, 0, 0, len(payload)) + payload
    return LENGTH.pack(len(body)) + body


def frames(
    segment: int, operations: Sequence[Operation], words: list[bytearray]
) -> Iterator[tuple[bytes, list[memoryview]]]:
    """Frames that carry `operations` on `segment`, and where the results of each belong.

    A word result goes into a new bytearray, which is appended to `words`; that of a read goes where it is wanted.
    """
    body = bytearray()
    targets: list[memoryview] = []
    expected = 0
    for piece, target in _pieces(segment, operations, words):
        result_bytes = 0 if target is None else len(target)
        if body and (len(body) + len(piece) > MAX_FRAME or expected + result_bytes > MAX_FRAME):
            yield LENGTH.pack(len(body)) + body, targets
            body, targets, expected = bytearray(), [], 0
        body += piece
        if target is not None:
            targets.append(target)
            expected += result_bytes
    if body:
        yield LENGTH.pack(len(body)) + body, targets


def _pieces(
    segment: int, operations: Sequence[Operation], words: list[bytearray]
) -> Iterator[tuple[bytes, memoryview | None]]:
    """Operations small enough for a frame: their bytes, and where the result belongs if there is one."""
    for operation in operations:
        match operation:
            case Load(offset):
                words.append(bytearray(_WORD.size))
                yield _OPERATION.pack(Kind.LOAD, segment, offset, 0), memoryview(words[-1])
            case Add(offset, value):
                words.append(bytearray(_WORD.size))
                yield _OPERATION.pack(Kind.ADD, segment, offset, value), memoryview(words[-1])
            case Store(offset, value):
                yield _OPERATION.pack(Kind.STORE, segment, offset, value), None
            case Read(offset, into):
                target = octets(into)
                for begin in range(0, len(target), PIECE):
                    part = target[begin : begin + PIECE]
                    yield _OPERATION.pack(Kind.READ, segment, offset + begin, len(part)), part
            case Write(offset, data):
                source = octets(data)
                for begin in range(0, len(source), PIECE):
                    part = source[begin : begin + PIECE]
                    yield _OPERATION.pack(Kind.WRITE, segment, offset + begin, len(part)) + part, None


def parse(body: memoryview) -> list[Request]:
    """The operations of a frame. Raises Misbehaved when they do not fill it exactly or ask for too much."""
    requests = []
    begin = results = 0
    while begin < len(body):
        if len(body) - begin < _OPERATION.size:
            raise Misbehaved(f"{len(body) - begin} bytes are left in a frame, too few for an operation")
        kind, segment, offset, argument = _OPERATION.unpack_from(body, begin)
        begin += _OPERATION.size
        if kind not in Kind._value2member_map_:
            raise Misbehaved(f"operation {kind} does not exist")
        payload = argument if kind in (Kind.WRITE, Kind.FIND) else 0
        if payload > len(body) - begin:
            raise Misbehaved(f"an operation announces {payload} bytes, the frame has {len(body) - begin} left")
        request = Request(Kind(kind), segment, offset, argument, body[begin : begin + payload])
        begin += payload
        results += request.result_bytes
        if results > MAX_FRAME:
            raise Misbehaved(f"a frame asks for more than {MAX_FRAME} bytes")
        requests.append(request)
    return requests
