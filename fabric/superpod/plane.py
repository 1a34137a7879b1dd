"""The three networks of a SuperPod, which of them joins two servers, and what a transfer costs on it.

UB joins the 910C servers of one SuperPod; RoCE joins every NPU to every other; VPC is the servers' ordinary
network, which always exists. The best plane is the fastest one that both ends share.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from superpod import timing
from superpod.topology import Server


class Plane(StrEnum):
    """A network plane, fastest first."""

    UB = "UB"
    ROCE = "RoCE"
    VPC = "VPC"


_READ_BANDWIDTH: Final[dict[Plane, timing.Figure]] = {
    Plane.UB: timing.UB_READ,
    Plane.ROCE: timing.ROCE,
    Plane.VPC: timing.VPC_CHIP,
}


def best_plane(a: Server, b: Server) -> Plane:
    """The fastest plane that joins dies of servers `a` and `b` (one server may be given twice)."""
    if a.has_ub and b.has_ub and a.superpod == b.superpod:
        return Plane.UB
    if a.has_roce and b.has_roce:
        return Plane.ROCE
    return Plane.VPC


def transfer_seconds(plane: Plane, nbytes: int) -> float:
    """Seconds for one die to read `nbytes` over an idle `plane`: bandwidth alone, no start-up latency."""
    return nbytes / _READ_BANDWIDTH[plane].value
