"""The listener's side of a TCP connection without a socket: any bytes, in any pieces, at any time."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl import tcp_auth as auth
from xccl.header import CLOSED_OFFSET
from xccl.layout import HEADER_BYTES
from xccl.liveness import this_process
from xccl.memory import MappedMemory
from xccl.operations import Add, Load, Operation, Read, Store, Write
from xccl.shm import Segment
from xccl.tcp_auth import Claim
from xccl.tcp_conversation import Conversation
from xccl.tcp_frames import LENGTH, MAX_FRAME, Misbehaved, find_frame, frames, parse

SECRET = bytes(range(16))
NBYTES = 2 * HEADER_BYTES


def segment() -> Segment:
    return Segment(Path("/nowhere"), this_process(), NBYTES, MappedMemory(bytearray(NBYTES)))


def authenticated(own: dict[str, Segment], wanted: str = "me") -> Conversation:
    conversation = Conversation(SECRET, "me", own.get)
    greeting = bytes(conversation.outgoing)
    claim = auth.claim(SECRET, greeting, Claim("caller", wanted))
    assert claim is not None
    conversation.receive(claim)
    assert conversation.work()
    del conversation.outgoing[:]
    return conversation


def say(conversation: Conversation, data: bytes) -> bytes:
    """What it answers."""
    conversation.receive(data)
    while conversation.work():
        pass
    answer = bytes(conversation.outgoing)
    del conversation.outgoing[:]
    return answer


def reply(result: bytes) -> bytes:
    return LENGTH.pack(len(result)) + result


def word(value: int) -> bytes:
    return reply(value.to_bytes(8, "little"))


def packed(*operations: Operation, number: int = 1) -> bytes:
    return b"".join(frame for frame, _ in frames(number, operations, []))


@settings(max_examples=300)
@given(st.binary(max_size=300))
def test_any_bytes_are_operations_or_misbehaviour(body: bytes) -> None:
    try:
        requests = parse(memoryview(body))
    except Misbehaved:
        return
    assert sum(request.result_bytes for request in requests) <= MAX_FRAME


@settings(max_examples=300)
@given(st.data())
def test_damaged_frames_change_nothing_outside_of_the_segment_and_never_its_header(data: st.DataObject) -> None:
    """Whatever turns over in a batch: it is carried out, or refused as a whole; nothing else can happen."""
    ring = segment()
    conversation = authenticated({"ring": ring})
    assert say(conversation, find_frame("ring")) == word(1)
    frame = bytearray(
        packed(Store(HEADER_BYTES, 7), Add(HEADER_BYTES + 8, 1), Write(NBYTES - 8, b"12345678"), Read(0, bytearray(16)))
    )
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    before = bytes(ring.memory.buffer)
    try:
        say(conversation, bytes(frame))
    except Misbehaved:
        assert bytes(ring.memory.buffer) == before
    assert bytes(ring.memory.buffer[:HEADER_BYTES]) == bytes(HEADER_BYTES)


@given(st.lists(st.integers(1, 40), max_size=20))
def test_pieces_do_not_matter(sizes: list[int]) -> None:
    conversation = authenticated({"ring": segment()})
    message = find_frame("ring") + packed(Store(HEADER_BYTES, 7), Load(HEADER_BYTES)) + packed(Add(HEADER_BYTES, 2))
    answer = b""
    for size in [*sizes, len(message)]:
        answer += say(conversation, message[:size])
        message = message[size:]
    assert answer == word(1) + word(7) + word(7)


def test_a_name_keeps_its_number_and_a_segment_that_is_not_there_has_none() -> None:
    own = {"a": segment()}
    conversation = authenticated(own)
    assert [say(conversation, find_frame(name)) for name in ("b", "a", "a")] == [word(0), word(1), word(1)]
    own["b"] = segment()
    assert say(conversation, find_frame("b")) == word(2)


def test_a_closed_segment_is_let_go_when_the_caller_moves_on() -> None:
    old, new = segment(), segment()
    conversation = authenticated({"old": old, "new": new})
    say(conversation, find_frame("old"))
    old.memory.poke(HEADER_BYTES, 5)
    old.memory.poke(CLOSED_OFFSET, 1)
    assert say(conversation, packed(Load(HEADER_BYTES))) == word(5)  # what was published may still be read
    assert say(conversation, find_frame("new")) == word(2)
    assert say(conversation, find_frame("old")) == word(0)
    assert old not in conversation._found
    assert say(conversation, packed(Store(HEADER_BYTES, 9))) == b""
    assert say(conversation, packed(Load(CLOSED_OFFSET))) == word(1)
    assert say(conversation, packed(Load(HEADER_BYTES))) == word(0)
    assert say(conversation, packed(Read(HEADER_BYTES, bytearray(4)))) == reply(bytes(4))
    assert old.memory.peek(HEADER_BYTES) == 5


def test_whoever_looks_for_another_incarnation_gets_nothing() -> None:
    conversation = authenticated({"ring": segment()}, wanted="my predecessor")
    with pytest.raises(Misbehaved, match="is not here"):
        say(conversation, find_frame("ring"))


def test_answers_pile_up_to_a_limit() -> None:
    conversation = authenticated({"ring": segment()})
    say(conversation, find_frame("ring"))
    question = packed(Read(HEADER_BYTES, bytearray(4096)))
    while conversation.hungry:
        conversation.receive(question)
        conversation.work()
    assert len(conversation.outgoing) < 2 * MAX_FRAME
