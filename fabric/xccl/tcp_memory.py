"""`RemoteMemory` of a peer that is reached over TCP.

Stores and writes are done when they are on their way; they take effect in order, before every later operation of this
side on the same peer. Loads, adds and reads wait for their answer. Nothing is repeated: a link that fails in the
middle of an operation leaves it done or not done, and whoever uses it makes a new epoch or channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from numpy.typing import NDArray

from xccl import header as head
from xccl.atomics import Offsets
from xccl.errors import PeerLost
from xccl.layout import HEADER_BYTES, Layout
from xccl.liveness import Owner
from xccl.memory import Buffer, Rows
from xccl.operations import Add, Load, Operation, Read, Store, Write
from xccl.steps import Steps
from xccl.tcp_frames import MAX_FRAME, find_frame, frames, unpack_word
from xccl.tcp_link import Answer, Link
from xccl.uri import Peer

MAX_UNSENT: Final = 2 * MAX_FRAME

_ELSEWHERE: Final = Owner(
    pid=0, start=0, namespace=0
)  # a process of another host: only its connection tells of its death


class TcpMemory:
    """One segment of `rank`, at the other end of `link`, where it has the number `number`."""

    def __init__(self, link: Link, number: int, rank: int) -> None:
        self._link = link
        self._number = number
        self._rank = rank

    def load(self, offset: int) -> Steps[int]:
        return (yield from self.batch([Load(offset)]))[0]

    def store(self, offset: int, value: int) -> Steps[None]:
        yield from self.batch([Store(offset, value)])

    def add(self, offset: int, value: int) -> Steps[int]:
        return (yield from self.batch([Add(offset, value)]))[0]

    def add_each(self, offsets: Offsets, value: int) -> Steps[None]:
        yield from self.batch([Add(offset, value) for offset in offsets.tolist()])

    def read(self, offset: int, into: Buffer) -> Steps[None]:
        yield from self.batch([Read(offset, into)])

    def write(self, offset: int, data: Buffer) -> Steps[None]:
        yield from self.batch([Write(offset, data)])

    def read_rows(self, offset: int, rows: Rows, into: NDArray[Any]) -> Steps[None]:
        stride = into.strides[0]
        yield from self.batch([Read(offset + row * stride, into[i : i + 1]) for i, row in enumerate(rows.tolist())])

    def write_rows(self, offset: int, rows: Rows, data: NDArray[Any]) -> Steps[None]:
        stride = data.strides[0]
        yield from self.batch([Write(offset + row * stride, data[i : i + 1]) for i, row in enumerate(rows.tolist())])

    def batch(self, operations: Sequence[Operation]) -> Steps[list[int]]:
        """Carry out `operations` in order with as few frames as they fit in; returns what loads and adds give."""
        link = self._link
        words: list[bytearray] = []
        answers: list[Answer] = []
        try:
            for frame, targets in frames(self._number, operations, words):
                yield from link.wait(lambda: link.posted - link.sent <= MAX_UNSENT, self._rank)
                answer = link.post(frame, targets)
                if answer is not None:
                    answers.append(answer)
            last = link.posted
            yield from link.wait(lambda: link.sent >= last, self._rank)
            yield from link.wait(lambda: all(answer.arrived for answer in answers), self._rank)
        finally:
            for answer in answers:
                answer.give_up()
        return [unpack_word(word) for word in words]

    def ask(self, offset: int) -> Answer:
        """Send for a word, to be looked at later."""
        [(frame, targets)] = frames(self._number, [Load(offset)], [])
        answer = self._link.post(frame, targets)
        assert answer is not None
        return answer


@dataclass(eq=False)
class TcpSegment:
    """A peer's segment over TCP. `failure` and `closed` tell what is known by now, and ask for news."""

    link: Link
    memory: TcpMemory
    rank: int
    owner: Owner = _ELSEWHERE
    _closed: bool = False
    _question: Answer | None = None

    @property
    def failure(self) -> PeerLost | None:
        """What has ended the link, if something has."""
        self.link.pump()
        return self.link.failure.of(self.rank) if self.link.failure else None

    @property
    def closed(self) -> bool:
        """Whether the peer had closed the segment when this was last asked.

        What it wrote before it closed takes another way, and has the time until then to arrive.
        """
        self.link.pump()
        known = self._closed
        if self._question is not None and self._question.arrived:
            self._closed = unpack_word(self._question.targets[0]) != 0
            self._question = None
        if self._question is None and not self._closed and self.link.failure is None:
            self._question = self.memory.ask(head.CLOSED_OFFSET)
            self.link.pump()
        return known


def find(link: Link, peer: Peer, name: str, layout: Layout, nbytes: int) -> Steps[TcpSegment | None]:
    """The peer's segment `name`, or None while it is not there yet. Raises BadSegment, LayoutMismatch, PeerLost."""
    word = bytearray(8)
    answer = link.post(find_frame(name), [memoryview(word)])
    assert answer is not None
    yield from link.wait(lambda: answer.arrived, peer.rank)
    if (number := unpack_word(word)) == 0:
        return None
    memory = TcpMemory(link, number, peer.rank)
    page = bytearray(HEADER_BYTES)
    yield from memory.read(0, page)
    header = head.parse(bytes(page), peer.uri)
    if header is None:
        return None
    header.expect(peer.incarnation, name, layout.words_of(name), nbytes, peer.uri)
    return TcpSegment(link, memory, peer.rank)
