"""What TE-shells counted, as figures: how even the load is, and how much of the unevenness is chance.

Without NumPy: an operator that balances no experts need not carry it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flowserve.wire import ShellStatus
from flowserve.wire_experts import ExpertSlice


@dataclass(frozen=True)
class Measured:
    """Load of the busiest rank over the mean, 1 where it is even; ``mean`` over layers, ``worst`` of them."""

    mean: float
    worst: float


@dataclass(frozen=True)
class Group:
    """How far the ranks of an instance are. ``version`` is None while they differ; ``target`` 0 if nothing is on its
    way; ``highest`` is above no version that any of them knows."""

    epoch: int
    ranks: int
    version: int | None
    target: int
    phase: str
    given_up: int
    highest: int
    error: str
    iterations: int
    swaps: int
    moved_bytes: int

    @classmethod
    def of(cls, report: ShellStatus) -> "Group | None":
        """What an instance that serves says; None of one that does not."""
        ranks = [rank.status for rank in report.ranks if rank.status is not None]
        if not report.ready or not ranks:
            return None
        experts = [rank.experts for rank in ranks]
        versions = {one.version for one in experts}
        moving = [one for one in experts if one.target]
        errors = [one.error for one in experts if one.error]
        return cls(
            epoch=report.epoch,
            ranks=len(ranks),
            version=versions.pop() if len(versions) == 1 else None,
            target=max((one.target for one in moving), default=0),
            phase=moving[0].phase if moving else "Idle",
            given_up=max(one.given_up for one in experts),
            highest=max(max(one.version, one.target, one.given_up) for one in experts),
            error=errors[0] if errors else report.refused_order,
            iterations=max(rank.iterations for rank in ranks),
            swaps=max(one.swaps for one in experts),
            moved_bytes=sum(one.moved_bytes for one in experts),
        )


def measured(slices: Sequence[ExpertSlice], epoch: int, version: int, speeds: Sequence[float] = ()) -> Measured | None:
    """The last interval with this placement in which anything was computed; None if there is none.

    ``speeds`` by rank, relative; 0 of a rank that is to hold nothing: it is not waited for. Without them all are alike.
    """
    for one in reversed(slices):
        if (one.epoch, one.version) != (epoch, version) or len(one.served) != len(speeds or one.served):
            continue
        layers = [layer for layer in zip(*one.served, strict=True) if any(layer)]
        if layers:
            each = [_imbalance(layer, speeds or [1.0] * len(layer)) for layer in layers]
            return Measured(sum(each) / len(each), max(each))
    return None


def _imbalance(layer: Sequence[int], speeds: Sequence[float]) -> float:
    slowest = max((load / speed for load, speed in zip(layer, speeds, strict=True) if speed), default=0.0)
    return slowest * sum(speeds) / sum(layer)


def remark(rows: float, ranks: int, experts: int, imbalance: float) -> str:
    """Why balancing does not pay, with the figures; empty where it may.

    ``rows``: (token, expert) pairs of a rank, layer and iteration. So few are uneven by chance alone: the busiest of n
    ranks lies about sqrt(2 ln n / rows) above the mean, whatever the placement, and every iteration waits for it.
    """
    if ranks < 2:
        return "one rank has nobody to share with"
    chance = 1 + math.sqrt(2 * math.log(ranks) / max(rows, 1e-9))
    if chance <= imbalance:
        return ""
    return (
        f"{rows:.1f} rows a rank, layer and iteration: chance alone makes the busiest of {ranks} ranks {chance:.2f} "
        f"times the mean, the placement of {experts / ranks:.1f} experts a rank {imbalance:.2f}; larger batches pay"
    )
