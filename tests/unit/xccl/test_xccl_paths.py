"""Paths of p2p: the rule that picks one, regions, and what the compiled half has in common with the Steps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xccl_tcp_world import hosts
from xccl_world import SMALL, endpoints, interleave, peer_of, randomly

from xccl import Broken, Channel, CorruptField, Endpoint, EventMismatch, Path, Situation, Timeout, atomics, ring, run
from xccl.layout import RingMap
from xccl.paths import AIVS, UNIFIED_BUFFER_BYTES, ZERO_COPY_BYTES, Cores, default_rule
from xccl.ring import FILLED, RECEIVED, Ring
from xccl.steps import Steps

if atomics.NATIVE:
    from xccl._native import PARTIAL

CAPACITY = SMALL.ring_slots * SMALL.slot_bytes
KIB, MIB = 1024, 1024 * 1024


@pytest.mark.parametrize(
    ("now", "path"),
    [
        (Situation(64, registered=True, free_aivs=48, contended=False), Path.MTE),
        (Situation(ZERO_COPY_BYTES, registered=True, free_aivs=0, contended=True), Path.ZERO_COPY),
        (Situation(UNIFIED_BUFFER_BYTES, registered=False, free_aivs=0, contended=True), Path.MTE),
        (Situation(MIB, registered=False, free_aivs=2, contended=False), Path.MTE),
        (Situation(MIB, registered=False, free_aivs=1, contended=False), Path.DMA),
        (Situation(MIB, registered=False, free_aivs=48, contended=True), Path.DMA),
    ],
)
def test_the_default_rule(now: Situation, path: Path) -> None:
    assert default_rule(now) is path


def test_mte_sends_take_cores_and_the_others_none() -> None:
    cores = Cores()
    with cores.taken(Path.MTE), cores.taken(Path.MTE), cores.taken(Path.DMA), cores.taken(Path.ZERO_COPY):
        assert cores.free == AIVS - 4
    assert cores.free == AIVS


@pytest.fixture
def ends() -> Iterator[list[Endpoint]]:
    with endpoints(2) as made:
        yield made


def connect(a: Endpoint, b: Endpoint) -> list[Channel]:
    return interleave([Channel.connect(a, peer_of(b)), Channel.connect(b, peer_of(a))])


def transfer(sender: Steps[None], receiver: Steps[int], seed: int = 0) -> int:
    def counted() -> Steps[int]:
        yield from sender
        return 0

    return interleave([counted(), receiver], randomly(seed))[1]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.binary(max_size=3 * CAPACITY), st.sampled_from(Path)), min_size=1, max_size=6),
    st.integers(0, 99),
)
def test_every_path_delivers_whole_messages_in_order(messages: list[tuple[bytes, Path]], seed: int) -> None:
    with endpoints(2) as made:
        sender, receiver = connect(*made)
        region = made[0].region(len(messages) * 4096)
        for event, (message, path) in enumerate(messages, 1):
            data = region.empty(len(message))
            data[:] = np.frombuffer(message, np.uint8)
            into = bytearray(3 * CAPACITY)
            nbytes = transfer(sender.send(data, event=event, path=path), receiver.receive(into, event=event), seed)
            assert bytes(into[:nbytes]) == message
        region.close()


def test_data_in_a_region_are_found_and_others_are_not(ends: list[Endpoint]) -> None:
    region = ends[0].region(3 * 4096)
    first, second = region.empty((2, 3), np.float32), region.empty(10)
    for array in (first, second, second[3:7]):
        reference = ends[0].reference(array.view(np.uint8).reshape(-1).data)
        assert reference is not None
        assert reference.nbytes == array.nbytes
    assert ends[0].reference(memoryview(bytearray(10))) is None
    with pytest.raises(ValueError, match="10000 bytes do not fit"):
        region.empty(10_000)
    region.close()
    region.close()
    assert ends[0].reference(second.data) is None


def test_zero_copy_of_data_elsewhere_is_refused_and_harms_nothing(ends: list[Endpoint]) -> None:
    sender, receiver = connect(*ends)
    with pytest.raises(ValueError, match="in a region of this endpoint"):
        run(sender.send(b"x", event=1, path=Path.ZERO_COPY), timeout=1)
    into = bytearray(4)
    assert transfer(sender.send(b"y", event=1), receiver.receive(into, event=1)) == 1


def test_a_region_made_after_the_connection_and_another_after_its_end(ends: list[Endpoint]) -> None:
    sender, receiver = connect(*ends)
    for event in (1, 2):
        region = ends[0].region(100_000)
        data = region.empty(100_000)
        data[:] = event
        into = np.empty_like(data)
        assert transfer(sender.send(data, event=event), receiver.receive(into, event=event)) == 100_000
        assert (into == event).all()
        region.close()


@pytest.mark.parametrize("far", [False, True], ids=["mapped", "tcp"])
def test_what_lay_in_a_region_that_was_given_up_is_not_taken_for_the_message(far: bool) -> None:
    """Over TCP, such memory reads as zeros once its owner has let it go; the next message arrives all the same."""
    with hosts(2) if far else endpoints(2) as made:
        sender, receiver = connect(*made)
        regions = [made[0].region(100) for _ in range(2)]
        kept, given_up = (region.empty(100) for region in regions)
        into = bytearray(1000)
        for event, data in ((1, kept), (2, given_up)):
            transfer(sender.send(data, event=event, path=Path.ZERO_COPY), receiver.receive(into, event=event))
        sending = sender.send(given_up, event=3, path=Path.ZERO_COPY)
        next(sending)
        regions[1].close()
        with pytest.raises(EventMismatch, match="event 3: the sender has given up the region"):
            run(receiver.receive(into, event=3), timeout=10)
        kept[:] = 7
        assert transfer(sender.send(kept, event=4, path=Path.ZERO_COPY), receiver.receive(into, event=4)) == 100
        assert into[:100] == bytes([7] * 100)


def test_long_reads_give_way(ends: list[Endpoint], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "_WHOLE_READ", 1000)
    sender, receiver = connect(*ends)
    data = ends[0].region(3500).empty(3500)
    data[:] = np.arange(3500) % 251
    sending = sender.send(data, event=1, path=Path.ZERO_COPY)
    next(sending)
    into = np.empty_like(data)
    assert sum(1 for _ in receiver.receive(into, event=1)) == 3
    assert np.array_equal(into, data)


def test_a_reference_outside_of_its_region_is_corrupt(ends: list[Endpoint]) -> None:
    sender, receiver = connect(*ends)
    region = ends[0].region(100)
    sending = sender.send(region.empty(100), event=1, path=Path.ZERO_COPY)
    next(sending)
    receiver._own.memory.poke(RingMap(SMALL).slot(1) + 16, 1 << 40)
    with pytest.raises(CorruptField, match="lies outside of its region"):
        run(receiver.receive(bytearray(100), event=1), timeout=1)


def test_a_sender_may_post_many_messages_before_any_is_copied_out(ends: list[Endpoint]) -> None:
    sender, receiver = connect(*ends)
    posted = [sender.send(bytes([event]), event=event) for event in (1, 2)]
    for steps in posted:
        next(steps)
    into = bytearray(1)
    for event in (1, 2):
        run(receiver.receive(into, event=event), timeout=1)
        assert into[0] == event
    assert interleave(posted) == [None, None]


@pytest.mark.skipif(not atomics.NATIVE, reason="built without a C compiler")
class TestCompiledHalf:
    """`send_now` and `receive_now` speak the protocol of the Steps."""

    @settings(max_examples=80, deadline=None)
    @given(st.lists(st.tuples(st.binary(max_size=3 * CAPACITY), st.booleans(), st.booleans()), min_size=1, max_size=6))
    def test_either_half_understands_the_other(self, messages: list[tuple[bytes, bool, bool]]) -> None:
        with endpoints(2) as made:
            sender, receiver = connect(*made)
            for event, (message, compiled_send, compiled_receive) in enumerate(messages, 1):
                into = bytearray(3 * CAPACITY)
                sending = sender.send(message, event=event)
                if compiled_send and sender._native and len(message) <= CAPACITY // 2:
                    assert sender._native.send(message, event, CAPACITY, False) < 0  # nobody receives yet
                    sending = sender._ring.await_copied(sender._ring.counters[0])
                if compiled_receive and len(message) <= CAPACITY // 2:
                    next(sending)  # everything is in the ring
                    nbytes = receiver.receive_now(into, event=event, timeout=1)
                    interleave([sending])
                else:
                    nbytes = transfer(sending, receiver.receive(into, event=event))
                assert bytes(into[:nbytes]) == message

    @pytest.mark.parametrize("compiled", [True, False])
    def test_receiving_goes_on_where_the_compiled_half_stopped(self, ends: list[Endpoint], compiled: bool) -> None:
        sender, receiver = connect(*ends)
        message = bytes(range(200))  # twice the ring: more than one call can take
        sending = sender.send(message, event=1)
        next(sending)
        into = bytearray(200)
        with pytest.raises(Timeout):
            receiver.receive_now(into, event=1, timeout=0)
        native, counters = receiver._native, receiver._ring.counters
        assert native is not None
        assert (counters[RECEIVED], counters[FILLED]) == (2, CAPACITY)
        rest = receiver._receive_rest(native, into, 1) if compiled else receiver._receive(into, 1, CAPACITY, 2)
        assert transfer(sending, rest) == 200
        assert bytes(into) == message

    def test_sending_goes_on_where_the_compiled_half_stopped(self, ends: list[Endpoint]) -> None:
        sender, receiver = connect(*ends)
        message = bytes(range(200))
        native, into = sender._native, bytearray(200)
        assert native is not None
        assert native.send(message, 1, CAPACITY * 9, False) == PARTIAL
        assert transfer(sender._send_rest(native, message, 1), receiver.receive(into, event=1)) == 200
        assert bytes(into) == message

    def test_what_is_unusual_raises_as_the_steps_do(self, ends: list[Endpoint]) -> None:
        sender, receiver = connect(*ends)
        with pytest.raises(Timeout):
            receiver.receive_now(bytearray(1), event=1, timeout=0)
        with pytest.raises(Timeout):
            sender.send_now(b"late", event=3, timeout=0)
        with pytest.raises(EventMismatch):
            receiver.receive_now(bytearray(9), event=2, timeout=1)
        with pytest.raises(ValueError, match="larger than the 3 bytes"):
            receiver.receive_now(bytearray(3), event=3, timeout=1)
        assert receiver.receive_now(bytearray(4), event=3, timeout=1) == 4
        with pytest.raises(ValueError, match="event 3 must be larger than 3"):
            sender.send_now(b"again", event=3, timeout=1)
        with pytest.raises(ValueError, match="event 3 must be larger than 3"):
            receiver.receive_now(bytearray(3), event=3, timeout=1)
        with pytest.raises(TypeError):
            sender.send_now(memoryview(b"not contiguous")[::2], event=4, timeout=1)
        sending = sender.send(bytes(CAPACITY + 1), event=5)
        next(sending)
        with pytest.raises(Broken):
            sender.send_now(b"x", event=6, timeout=1)

    def test_a_damaged_field_is_found(self, ends: list[Endpoint]) -> None:
        sender, receiver = connect(*ends)
        next(sender.send(b"x", event=1))
        receiver._own.memory.poke(RingMap(SMALL).field(1) + 16, 63)
        with pytest.raises(CorruptField, match="does not match its seal"):
            receiver.receive_now(bytearray(99), event=1, timeout=1)

    def test_messages_by_reference_go_the_short_way_from_the_second_on(
        self, ends: list[Endpoint], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sender, receiver = connect(*ends)
        data = ends[0].region(3 * ZERO_COPY_BYTES).empty(2 * ZERO_COPY_BYTES)
        into = np.empty_like(data)
        data[:] = 1
        transfer(sender.send(data, event=1), receiver.receive(into, event=1))
        for event, size in ((2, len(data)), (3, ZERO_COPY_BYTES)):
            data[:] = event
            with pytest.raises(Timeout):  # nobody has taken it yet
                sender.send_now(data[:size], event=event, timeout=0)
            monkeypatch.setattr(Ring, "receive", None)
            assert receiver.receive_now(into, event=event, timeout=1) == size
            monkeypatch.undo()
            assert (into[:size] == event).all()

    def test_regions_that_were_given_up_are_let_go(self, ends: list[Endpoint]) -> None:
        native = connect(*ends)[0]._native
        assert native is not None
        first, second = bytearray(64), bytearray(64)
        native.know_region(1, first, 8)
        with pytest.raises(BufferError):
            first.clear()
        first[8] = 1
        native.know_region(2, second, 8)
        first.clear()
        for number in range(3, 40):
            native.know_region(number, bytearray(64), 8)
        second.clear()
        with pytest.raises(ValueError, match="no such word"):
            native.know_region(40, bytearray(64), 60)
