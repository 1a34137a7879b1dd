"""A probe tells a busy receiver from a broken link, and both from a peer that is gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from xccl_world import SMALL, interleave, peer_of

from xccl import Channel, Endpoint, Network, Steps, Verdict, run
from xccl.faults import Disturbance, Faults
from xccl.probe import Report

CAPACITY = SMALL.ring_slots * SMALL.slot_bytes


@pytest.fixture(params=["shared memory", "tcp"])
def ends(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Channel, Channel, Faults]]:
    """A channel's two ends, and the faults of the first one's link."""
    faults = Faults()
    apart = request.param == "tcp"
    network = Network(bytes(16)) if apart else None
    with ExitStack() as stack:
        a, b = (
            stack.enter_context(
                Endpoint.create(tmp_path / (name if apart else ""), name, SMALL, network=network, faults=faults)
            )
            for name in ("die-0", "die-1")
        )
        first, second = interleave([Channel.connect(a, peer_of(b)), Channel.connect(b, peer_of(a))])
        yield first, second, faults


def probed(channel: Channel, timeout: float = 5.0, patience: float = 0.05) -> Report:
    return run(channel.probe(timeout=timeout, patience=patience), timeout=20)


def fill(channel: Channel) -> Steps[None]:
    """A message too large for the ring, under way."""
    sending = channel.send(bytes(CAPACITY + 1), event=1)
    next(sending)
    return sending


def test_a_line_at_rest_is_healthy(ends: tuple[Channel, Channel, Faults]) -> None:
    report = probed(ends[0])
    assert (report.verdict, report.backlog) == (Verdict.HEALTHY, 0)
    assert report.round_trip is not None
    assert report.round_trip > 0


def test_a_receiver_that_takes_nothing_is_saturated(ends: tuple[Channel, Channel, Faults]) -> None:
    fill(ends[0])
    report = probed(ends[0])
    assert (report.verdict, report.backlog) == (Verdict.SATURATED, SMALL.ring_slots)
    assert report.round_trip is not None


def test_a_busy_receiver_that_takes_something_is_healthy(ends: tuple[Channel, Channel, Faults]) -> None:
    sending = fill(ends[0])
    receiving = ends[1].receive(bytearray(2 * CAPACITY), event=1)
    steps: list[Steps[Any]] = [ends[0].probe(timeout=5, patience=5), receiving, sending]
    assert interleave(steps)[0].verdict == Verdict.HEALTHY


def test_a_cut_link_is_a_fault_of_the_link_also_when_the_ring_is_full(ends: tuple[Channel, Channel, Faults]) -> None:
    fill(ends[0])
    ends[2].link("die-1").cut()
    report = probed(ends[0])
    assert (report.verdict, report.round_trip) == (Verdict.LINK_FAULT, None)


def test_a_payload_that_gets_lost_is_a_fault_of_the_link(ends: tuple[Channel, Channel, Faults]) -> None:
    ends[2].link("die-1").disturbance = Disturbance(drop=1.0)
    report = probed(ends[0], timeout=0.05)
    assert (report.verdict, report.reason) == (Verdict.LINK_FAULT, "the payload did not come back within 0.05 s")


def test_a_payload_that_is_damaged_is_a_fault_of_the_link(ends: tuple[Channel, Channel, Faults]) -> None:
    ends[2].link("die-1").disturbance = Disturbance(corrupt=1.0)
    report = probed(ends[0])
    assert (report.verdict, report.reason) == (Verdict.LINK_FAULT, "the payload came back damaged")


def test_a_slow_link_shows_in_the_round_trip(ends: tuple[Channel, Channel, Faults]) -> None:
    ends[2].link("die-1").disturbance = Disturbance(delay=0.05)
    report = probed(ends[0])
    assert report.verdict == Verdict.HEALTHY
    assert report.round_trip is not None
    assert report.round_trip >= 0.1


def test_a_peer_that_is_gone_is_lost(ends: tuple[Channel, Channel, Faults]) -> None:
    ends[1]._endpoint.close()
    assert probed(ends[0]).verdict == Verdict.PEER_LOST


def test_probing_disturbs_no_message(ends: tuple[Channel, Channel, Faults]) -> None:
    sending = fill(ends[0])
    assert probed(ends[0]).verdict == Verdict.SATURATED
    into = bytearray(2 * CAPACITY)
    steps: list[Steps[Any]] = [sending, ends[1].receive(into, event=1)]
    assert interleave(steps)[1] == CAPACITY + 1
    assert not any(into)
