"""Links that are slow, lossy or broken on purpose, and the errors that tell them apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from xccl_world import SMALL, endpoints, interleave, join, peer_of

from xccl import Channel, CorruptField, Endpoint, LinkBroken, Timeout, run
from xccl.faults import Disturbance, Faults, FaultyLink
from xccl.faults_memory import FaultyMemory
from xccl.layout import HEADER_BYTES
from xccl.memory import MappedMemory


class Clock:
    """Stands still until somebody waits: every look at it takes a millisecond."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def link(clock: Clock) -> FaultyLink:
    return Faults(clock=clock).link("peer")


@pytest.fixture
def memory() -> MappedMemory:
    return MappedMemory(bytearray(4096))


@pytest.fixture
def far(memory: MappedMemory, link: FaultyLink) -> FaultyMemory:
    return FaultyMemory(memory, link, rank=3)


def everything(memory: Any) -> list[Any]:
    """One operation of each kind, and what they say."""
    into, rows = bytearray(8), np.zeros((2, 2), np.float32)
    return [
        run(memory.store(64, 7), timeout=10),
        run(memory.add(64, 2), timeout=10),
        run(memory.load(64), timeout=10),
        run(memory.add_each(np.array([72, 72]), 4), timeout=10),
        run(memory.write(80, b"12345678"), timeout=10),
        run(memory.read(80, into), timeout=10),
        bytes(into),
        run(memory.write_rows(128, np.array([3, 1]), np.ones((2, 2), np.float32)), timeout=10),
        run(memory.read_rows(128, np.array([1, 2]), rows), timeout=10),
        rows.tolist(),
    ]


def test_a_link_that_is_well_changes_nothing(far: FaultyMemory) -> None:
    assert everything(far) == everything(MappedMemory(bytearray(4096)))


def test_delay_comes_before_the_operation(
    clock: Clock, link: FaultyLink, far: FaultyMemory, memory: MappedMemory
) -> None:
    link.disturbance = Disturbance(delay=0.3)
    began = clock.now
    storing = far.store(64, 7)
    next(storing)
    assert memory.peek(64) == 0
    run(storing, timeout=60)
    assert memory.peek(64) == 7
    assert clock.now - began == pytest.approx(0.3, abs=0.02)


def test_slow_stretches_what_an_operation_takes(clock: Clock, link: FaultyLink) -> None:
    class Leisurely(MappedMemory):
        def write(self, offset: int, data: Any) -> Any:
            clock.now += 0.1
            return super().write(offset, data)

    link.disturbance = Disturbance(slow=5.0)
    began = clock.now
    run(FaultyMemory(Leisurely(bytearray(64)), link, 0).write(0, b"x"), timeout=60)
    assert clock.now - began == pytest.approx(0.5, abs=0.05)


def test_what_is_dropped_never_arrives_and_is_never_answered(
    link: FaultyLink, far: FaultyMemory, memory: MappedMemory
) -> None:
    link.disturbance = Disturbance(drop=1.0)
    run(far.store(64, 7), timeout=10)
    run(far.write(72, b"x"), timeout=10)
    run(far.add_each(np.array([64]), 7), timeout=10)
    run(far.write_rows(64, np.array([0]), np.ones((1, 2))), timeout=10)
    for asking in (far.load(64), far.add(64, 1), far.read(64, bytearray(1))):
        with pytest.raises(Timeout):
            run(asking, timeout=0.01)
    assert not any(memory.buffer)


def test_drops_happen_as_often_as_asked_for_and_again_with_the_same_seed() -> None:
    def arrivals(seed: int) -> list[int]:
        memory, link = MappedMemory(bytearray(8 * 1000)), Faults(seed=seed).link("peer")
        link.disturbance = Disturbance(drop=0.3)
        for i in range(1000):
            run(FaultyMemory(memory, link, 0).store(8 * i, 1), timeout=10)
        return [memory.peek(8 * i) for i in range(1000)]

    first = arrivals(1)
    assert first == arrivals(1) != arrivals(2)
    assert 640 < sum(first) < 760


def test_corruption_turns_one_bit_over_and_leaves_the_callers_data_alone(
    link: FaultyLink, far: FaultyMemory, memory: MappedMemory
) -> None:
    link.disturbance = Disturbance(corrupt=1.0)
    data, into = bytes(64), bytearray(64)
    run(far.write(64, data), timeout=10)
    run(far.store(128, 0), timeout=10)
    run(far.read(256, into), timeout=10)
    rows = np.zeros((4, 2), np.float32)
    run(far.write_rows(512, np.arange(4), rows), timeout=10)
    for found in (memory.buffer[64:128], memory.buffer[128:136], into, memory.buffer[512:544]):
        assert sum(byte.bit_count() for byte in found) == 1
    assert run(far.load(1024), timeout=10).bit_count() == 1
    assert data == bytes(64)
    assert not rows.any()


def test_a_cut_link_carries_nothing_until_it_is_mended(link: FaultyLink, far: FaultyMemory) -> None:
    link.cut()
    for operation in (far.load(64), far.store(64, 1), far.write(64, b"x")):
        with pytest.raises(LinkBroken, match="rank 3"):
            run(operation, timeout=10)
    link.mend()
    assert run(far.load(64), timeout=10) == 0


def test_a_flap_mends_itself(clock: Clock, link: FaultyLink, far: FaultyMemory) -> None:
    link.flap(5.0)
    with pytest.raises(LinkBroken):
        run(far.load(64), timeout=10)
    clock.now += 5.0
    assert run(far.load(64), timeout=10) == 0


def test_a_cut_is_noticed_in_the_middle_of_waiting(link: FaultyLink, far: FaultyMemory) -> None:
    link.disturbance = Disturbance(drop=1.0)
    asking = far.load(64)
    next(asking)
    link.cut()
    with pytest.raises(LinkBroken):
        next(asking)


@pytest.mark.parametrize("wrong", [{"delay": -1.0}, {"slow": 0.5}, {"drop": 1.5}, {"corrupt": -0.1}])
def test_a_disturbance_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="delay must be at least 0"):
        Disturbance(**wrong)


@contextmanager
def disturbed(number: int) -> Iterator[tuple[list[Endpoint], Faults]]:
    """Endpoints of which the first one's links may be faulty."""
    faults = Faults()
    with endpoints(number, faults=faults) as made:
        yield made, faults


def test_a_cut_link_breaks_a_group_and_the_next_epoch_works_again() -> None:
    with disturbed(2) as (made, faults):
        groups = join(made, epoch=1)
        faults.link("die-1").cut()
        with pytest.raises(LinkBroken, match="rank 1"):
            run(groups[0].vote(1), timeout=10)
        with pytest.raises(LinkBroken, match="rank 1"):
            join(made, epoch=2)
        faults.link("die-1").mend()
        assert interleave([group.vote(group.rank) for group in join(made, epoch=3)]) == [(0, 1)] * 2


def test_whoever_only_waits_notices_the_cut_too() -> None:
    with disturbed(2) as (made, faults):
        a, _ = interleave([Channel.connect(made[0], peer_of(made[1])), Channel.connect(made[1], peer_of(made[0]))])
        receiving = a.receive(bytearray(8), event=1)
        next(receiving)
        faults.link("die-1").cut()
        with pytest.raises(LinkBroken):
            run(receiving, timeout=10)


def test_a_corrupt_field_is_found_by_the_receiver() -> None:
    with disturbed(2) as (made, faults):
        groups = join(made, epoch=1)
        faults.link("die-1").disturbance = Disturbance(corrupt=1.0)
        steps = groups[0].vote(1)
        for _ in range(3):
            next(steps)
        with pytest.raises(CorruptField, match="does not match its seal"):
            run(groups[1].vote(1), timeout=10)


def test_a_lossy_link_is_a_timeout_and_not_a_death() -> None:
    with disturbed(2) as (made, faults):
        groups = join(made, epoch=1)
        faults.link("die-1").disturbance = Disturbance(drop=1.0)
        with pytest.raises(Timeout):
            run(groups[0].vote(1), timeout=0.1)
        with pytest.raises(Timeout):
            run(groups[1].vote(1), timeout=0.1)


def test_header_bytes_are_read_through_the_link_as_well() -> None:
    """Connecting over a slow link works."""
    with disturbed(2) as (made, faults):
        faults.link("die-1").disturbance = Disturbance(delay=0.001, slow=2.0)
        made[1].own("ring-die-0", SMALL.ring_bytes)
        segment = run(made[0].connect(peer_of(made[1]), "ring-die-0", SMALL.ring_bytes), timeout=10)
        run(segment.memory.store(HEADER_BYTES, 3), timeout=10)
        assert made[1].own("ring-die-0", 0).memory.peek(HEADER_BYTES) == 3
