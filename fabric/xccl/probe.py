"""Probing a p2p line: is the link at fault, the peer gone, or its receiver just busy?

A sender that waits for an ACK sees the same in all three cases: nothing. A probe takes the receiver out of the
question: a dummy payload goes into the peer's memory beside the ring and is read back, for which nobody has to lift
a finger. What does not come back, late or damaged, is a fault of the link. If it comes back, the ring tells the rest:
when it is full and stays full, the receiver is saturated (a decode engine without room, or one that hangs), and
sending elsewhere or later helps, failing over does not.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from xccl.errors import LinkBroken, PeerLost, Timeout
from xccl.layout import SCRATCH_BYTES
from xccl.steps import Steps, within


class Verdict(StrEnum):
    """What a probe has found."""

    HEALTHY = "healthy"
    SATURATED = "saturated"
    LINK_FAULT = "link_fault"
    PEER_LOST = "peer_lost"


@dataclass(frozen=True)
class Report:
    """A verdict and its reasons: seconds until the payload was back (None if it was not), slots not copied out."""

    verdict: Verdict
    reason: str
    round_trip: float | None = None
    backlog: int = 0


class Line(Protocol):
    """What a probe needs of `xccl.ring.Ring`."""

    @property
    def slots(self) -> int: ...

    def echo(self, payload: bytes) -> Steps[bytes]: ...

    def backlog(self) -> Steps[int]: ...


def probe(
    line: Line,
    look: Callable[[], PeerLost | None],
    *,
    timeout: float,
    patience: float,
    clock: Callable[[], float] = time.monotonic,
) -> Steps[Report]:
    """See `Channel.probe`; `look` says whether the peer is known to be gone."""
    payload = secrets.token_bytes(SCRATCH_BYTES)
    began = clock()
    try:
        back = yield from within(line.echo(payload), timeout=timeout, clock=clock)
    except Timeout:
        return Report(Verdict.LINK_FAULT, f"the payload did not come back within {timeout:g} s")
    except PeerLost as lost:
        return _lost(lost)
    round_trip = clock() - began
    if (gone := look()) is not None:
        return _lost(gone)
    if back != payload:
        return Report(Verdict.LINK_FAULT, "the payload came back damaged", round_trip)

    first = backlog = yield from line.backlog()
    waited = clock()
    fresh = True
    while first >= line.slots and backlog == first and clock() - waited < patience:
        yield fresh
        fresh = False
        backlog = yield from line.backlog()
    if first >= line.slots and backlog == first:
        reason = f"the link works, but all {line.slots} slots stayed taken for {patience:g} s"
        return Report(Verdict.SATURATED, reason, round_trip, backlog)
    return Report(Verdict.HEALTHY, "the link works and the receiver takes what is sent", round_trip, backlog)


def _lost(lost: PeerLost) -> Report:
    verdict = Verdict.LINK_FAULT if isinstance(lost, LinkBroken) else Verdict.PEER_LOST
    return Report(verdict, str(lost))
