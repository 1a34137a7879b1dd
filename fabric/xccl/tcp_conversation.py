"""One TCP connection as its listener sees it, without I/O: bytes in, bytes out, operations on segments in between.

Until a caller has proven that it holds the secret, nothing but one claim of fixed size is taken from it. After that
it may read and write whatever the endpoint's segments hold, but for their first page, which says what they are and is
only read. A frame that does not fit is refused as a whole, before any of it is carried out; its connection ends
and nothing else happens.

Answers are produced only while few wait to be sent, so that a caller that asks and does not listen costs no memory.

A segment that was closed is let go when the same caller asks for another one: it has moved on. What it still writes
there is dropped, what it reads is zero, and the segment says that it is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

from xccl import tcp_auth as auth
from xccl.header import CLOSED_OFFSET
from xccl.layout import HEADER_BYTES
from xccl.shm import Segment
from xccl.steps import Steps
from xccl.tcp_auth import Claim, Verdict
from xccl.tcp_frames import LENGTH, MAX_FRAME, MAX_NAME, Kind, Misbehaved, Request, pack_word, parse

T = TypeVar("T")

Find: TypeAlias = Callable[[str], Segment | None]
"""An endpoint's own segment of that name, None while there is none."""

_WORD_BYTES: Final = 8


class Conversation:
    """Feed it with `receive`, let it `work`, and send what is in `outgoing`, taking off what was sent."""

    def __init__(self, secret: bytes, incarnation: str, find: Find) -> None:
        self._secret = secret
        self._incarnation = incarnation
        self._find = find
        self._greeting = auth.greeting()
        self._incoming = bytearray()
        self._found: list[Segment | None] = []
        self.outgoing = bytearray(self._greeting)
        self.caller: Claim | None = None

    @property
    def hungry(self) -> bool:
        """Whether more should be received: what is here is worked off, and its answers are not piling up."""
        return len(self._incoming) < LENGTH.size + MAX_FRAME and len(self.outgoing) < MAX_FRAME

    def receive(self, data: bytes) -> None:
        """Take what the caller has sent."""
        self._incoming += data

    def work(self) -> bool:
        """Carry out what is complete; False if nothing was. Raises Misbehaved, after which the connection must end."""
        if self.caller is None:
            return self._authenticate()
        done = False
        while len(self.outgoing) < MAX_FRAME and (body := self._next_frame()) is not None:
            self.outgoing += self._answer(parse(memoryview(body)))
            done = True
        return done

    def _authenticate(self) -> bool:
        if len(self._incoming) < auth.CLAIM_BYTES:
            return False
        claim = bytes(self._incoming[: auth.CLAIM_BYTES])
        del self._incoming[: auth.CLAIM_BYTES]
        caller = auth.verify_claim(self._secret, self._greeting, claim)
        if caller is None:
            raise Misbehaved("a caller does not hold the secret")
        word = Verdict.WELCOME if caller.wanted == self._incarnation else Verdict.RESTARTED
        self.outgoing += auth.verdict(self._secret, self._greeting, claim, word)
        self.caller = caller
        return True

    def _next_frame(self) -> bytes | None:
        if len(self._incoming) < LENGTH.size:
            return None
        length: int = LENGTH.unpack_from(self._incoming)[0]
        if not 0 < length <= MAX_FRAME:
            raise Misbehaved(f"a frame of {length} bytes is announced, at most {MAX_FRAME} are allowed")
        end = LENGTH.size + length
        if len(self._incoming) < end:
            return None
        body = bytes(self._incoming[LENGTH.size : end])
        del self._incoming[:end]
        return body

    def _answer(self, requests: list[Request]) -> bytes:
        assert self.caller is not None
        if self.caller.wanted != self._incarnation:
            raise Misbehaved("the caller was told that whom it wants is not here")
        for request in requests:
            self._check(request)
        results = b"".join([self._carry_out(request) for request in requests])
        return LENGTH.pack(len(results)) + results if results else b""

    def _check(self, request: Request) -> None:
        if request.kind is Kind.FIND:
            if not 0 < request.argument <= MAX_NAME:
                raise Misbehaved(f"a segment's name has {request.argument} bytes")
            return
        if not 0 < request.segment <= len(self._found):
            raise Misbehaved(f"segment {request.segment} was never found")
        segment = self._found[request.segment - 1]
        if segment is None:
            return
        of_word = request.kind in (Kind.LOAD, Kind.STORE, Kind.ADD)
        nbytes = _WORD_BYTES if of_word else request.argument
        if request.offset + nbytes > segment.nbytes or (of_word and request.offset % _WORD_BYTES):
            raise Misbehaved(f"{nbytes} bytes at {request.offset} do not fit a segment of {segment.nbytes}")
        if request.kind in (Kind.STORE, Kind.ADD, Kind.WRITE) and request.offset < HEADER_BYTES:
            raise Misbehaved("the header of a segment is only read")

    def _carry_out(self, request: Request) -> bytes:
        if request.kind is Kind.FIND:
            return pack_word(self._number_of(bytes(request.payload)))
        segment = self._found[request.segment - 1]
        if segment is None:
            closed = request.kind is Kind.LOAD and request.offset == CLOSED_OFFSET
            return pack_word(1) if closed else bytes(request.result_bytes)
        memory = segment.memory
        match request.kind:
            case Kind.LOAD:
                return pack_word(_at_once(memory.load(request.offset)))
            case Kind.STORE:
                _at_once(memory.store(request.offset, request.argument))
            case Kind.ADD:
                return pack_word(_at_once(memory.add(request.offset, request.argument)))
            case Kind.READ:
                result = bytearray(request.argument)
                _at_once(memory.read(request.offset, result))
                return bytes(result)
            case Kind.WRITE:
                _at_once(memory.write(request.offset, request.payload))
        return b""

    def _number_of(self, name: bytes) -> int:
        self._found = [None if segment is None or segment.closed else segment for segment in self._found]
        segment = self._find(name.decode(errors="replace"))
        if segment is None or segment.closed:
            return 0
        if segment not in self._found:
            self._found.append(segment)
        return self._found.index(segment) + 1


def _at_once(steps: Steps[T]) -> T:
    """The result of steps that never wait, as those over the endpoint's own memory."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
