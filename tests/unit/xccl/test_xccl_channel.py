"""p2p between two endpoints: sizes, order, and what happens when one side gives up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xccl_world import SMALL, endpoints, interleave, peer_of, randomly

from xccl import (
    Broken,
    Channel,
    CorruptField,
    Endpoint,
    EventMismatch,
    LayoutMismatch,
    PeerLost,
    RingFull,
    Steps,
    Timeout,
    run,
)
from xccl.layout import RingMap

Pair: TypeAlias = tuple[Channel, Channel]
CAPACITY = SMALL.ring_slots * SMALL.slot_bytes


def connect(a: Endpoint, b: Endpoint) -> Pair:
    first, second = interleave([Channel.connect(a, peer_of(b)), Channel.connect(b, peer_of(a))])
    return first, second


@pytest.fixture
def pair() -> Iterator[Pair]:
    with endpoints(2, clock=iter(range(1_000_000)).__next__) as (a, b):
        yield connect(a, b)


def transfer(sender: Channel, receiver: Channel, data: bytes, event: int, seed: int = 0) -> bytes:
    into = bytearray(max(len(data), 1))

    def receive() -> Steps[int]:
        return (yield from receiver.receive(into, event=event))

    def send() -> Steps[int]:
        yield from sender.send(data, event=event)
        return 0

    _, nbytes = interleave([send(), receive()], randomly(seed))
    return bytes(into[:nbytes])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.binary(max_size=3 * CAPACITY), min_size=1, max_size=5), st.integers(0, 99))
def test_messages_arrive_whole_and_in_order(messages: list[bytes], seed: int) -> None:
    with endpoints(2) as (a, b):
        sender, receiver = connect(a, b)
        for event, message in enumerate(messages, 1):
            assert transfer(sender, receiver, message, event, seed) == message


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, CAPACITY, CAPACITY + 1])
def test_sizes_at_the_edges_of_slot_and_ring(pair: Pair, size: int) -> None:
    data = bytes(i % 251 for i in range(size))
    assert transfer(*pair, data, event=1) == data


def test_ends_of_a_ring_may_belong_to_groups_of_different_sizes() -> None:
    larger = replace(SMALL, max_peers=SMALL.max_peers + 3, max_tokens=SMALL.max_tokens * 2)
    with endpoints(1) as (prefill,), Endpoint.create(prefill.directory, "decode", larger) as decode:
        sender, receiver = connect(prefill, decode)
        assert transfer(sender, receiver, b"latent", event=1) == b"latent"


def test_ends_of_a_ring_must_agree_on_its_slots() -> None:
    other = replace(SMALL, ring_slots=SMALL.ring_slots * 2)
    with endpoints(1) as (a,), Endpoint.create(a.directory, "b", other) as b, pytest.raises(LayoutMismatch):
        connect(a, b)


def test_arrays_travel_without_a_copy_of_the_caller(pair: Pair) -> None:
    data = np.arange(300, dtype=np.float32).reshape(3, 100)
    into = np.empty_like(data)
    interleave([pair[0].send(data, event=1), pair[1].receive(into, event=1)])
    assert np.array_equal(into, data)


def test_both_directions_at_once_with_full_rings(pair: Pair) -> None:
    data = bytes(2 * CAPACITY)
    into = [bytearray(len(data)), bytearray(len(data))]
    steps: list[Steps[Any]] = [c.send(data, event=1) for c in pair]
    steps += [c.receive(i, event=1) for c, i in zip(pair, into, strict=True)]
    assert interleave(steps, randomly(1)) == [None, None, len(data), len(data)]


def test_send_ends_only_after_the_copy_out(pair: Pair) -> None:
    with pytest.raises(Timeout):
        run(pair[0].send(b"x", event=1), timeout=0)


def test_a_receiver_that_takes_nothing_is_a_full_ring(pair: Pair) -> None:
    with pytest.raises(RingFull, match="all 2 slots are taken"):
        run(pair[0].send(bytes(CAPACITY + 1), event=1), timeout=0)


def test_a_receiver_that_gave_up_skips_the_rest_of_that_message(pair: Pair) -> None:
    sender, receiver = pair
    sending = sender.send(bytes(CAPACITY + 1), event=1)
    next(sending)  # fills the ring and waits
    receiving = receiver.receive(bytearray(2 * CAPACITY), event=1)
    next(receiving)  # takes what is there and waits for more
    receiving.close()
    with pytest.raises(ValueError, match="must be larger than 1"):
        next(receiver.receive(bytearray(9), event=1))

    def send_both() -> Steps[int]:
        yield from sending
        yield from sender.send(b"next", event=2)
        return 0

    later = bytearray(9)
    assert interleave([send_both(), receiver.receive(later, event=2)]) == [0, 4]
    assert later[:4] == b"next"


def test_a_message_that_the_sender_gave_up_is_an_event_mismatch(pair: Pair) -> None:
    sender, receiver = pair
    sending = sender.send(bytes(CAPACITY + 1), event=1)
    next(sending)  # fills the ring and waits
    sending.close()
    into = bytearray(2 * CAPACITY)
    receiving = receiver.receive(into, event=1)
    next(receiving)  # takes what is there and waits for more
    sending = sender.send(b"next", event=2)
    next(sending)
    with pytest.raises(EventMismatch, match="waited for event 1, but the sender is already at 2"):
        next(receiving)
    assert interleave([sending, receiver.receive(into, event=2)]) == [None, 4]


def test_a_message_larger_than_the_buffer_is_refused_and_the_next_arrives(pair: Pair) -> None:
    sender, receiver = pair
    sending = sender.send(b"too long", event=1)
    next(sending)
    with pytest.raises(ValueError, match="larger than the 3 bytes"):
        run(receiver.receive(bytearray(3), event=1), timeout=1)
    sending.close()
    assert transfer(sender, receiver, b"ok", event=2) == b"ok"


def test_events_must_grow(pair: Pair) -> None:
    transfer(*pair, b"x", event=5)
    with pytest.raises(ValueError, match="event 5 must be larger than 5"):
        next(pair[0].send(b"x", event=5))
    with pytest.raises(ValueError, match="event 5 must be larger than 5"):
        next(pair[1].receive(bytearray(1), event=5))


def test_two_sends_at_once_are_refused(pair: Pair) -> None:
    sending = pair[0].send(bytes(CAPACITY + 1), event=1)
    next(sending)  # fills the ring
    with pytest.raises(Broken, match="a send to die-1 is under way"):
        next(pair[0].send(b"y", event=2))
    receiving = pair[0].receive(bytearray(1), event=1)
    next(receiving)
    with pytest.raises(Broken, match="a receive from die-1 is under way"):
        next(pair[0].receive(bytearray(1), event=1))


def test_a_connection_is_made_once() -> None:
    with endpoints(2) as (a, b):
        connect(a, b)
        with pytest.raises(Broken, match=r"die-0\.ring-die-1-0 was in use before"):
            run(Channel.connect(a, peer_of(b)), timeout=1)


def test_connecting_may_be_tried_again_after_a_timeout() -> None:
    with endpoints(2) as (a, b):
        with pytest.raises(Timeout):
            run(Channel.connect(a, peer_of(b)), timeout=0)
        assert transfer(*connect(a, b), b"x", event=1) == b"x"


def test_a_closed_channel_is_a_lost_peer_on_either_side(pair: Pair) -> None:
    pair[1].close()
    with pytest.raises(PeerLost, match="closed its memory"):
        run(pair[0].receive(bytearray(1), event=1), timeout=1)
    with pytest.raises(PeerLost, match="closed its memory"):
        run(pair[0].send(b"x", event=1), timeout=1)


def test_a_damaged_field_is_found(pair: Pair) -> None:
    sending = pair[0].send(b"x", event=1)
    next(sending)
    offset = RingMap(SMALL).field(1)
    pair[1]._own.memory.poke(offset + 16, 63)
    with pytest.raises(CorruptField, match="does not match its seal"):
        run(pair[1].receive(bytearray(99), event=1), timeout=1)


def test_an_acknowledgement_of_what_was_never_sent_is_found(pair: Pair) -> None:
    pair[0]._own.memory.poke(RingMap(SMALL).acknowledged, 9)
    with pytest.raises(CorruptField, match="9 slots are acknowledged, 0 were sent"):
        next(pair[0].send(b"x", event=1))
