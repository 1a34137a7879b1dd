"""One replica of a TaskExecutor as it is now: its DP groups, their pods, its TE-shell and what the shell reports.

This is the snapshot that membership, recovery, rollout and readiness are decided on. Rank ``i`` of an instance is its
DP group ``i``. What a shell says of a rank counts only while it speaks of the pod that the group has now: a report
about another address is about another life.
"""

from dataclasses import dataclass

from flowserve.wire import RankReport, ShellStatus
from xdeepserve_operator.planner.groups import Departure, GroupView
from xdeepserve_operator.planner.pods import PodView
from xdeepserve_operator.planner.recovery import Fault


@dataclass(frozen=True, slots=True)
class RankView:
    """One DP group: its object (None while it has no place), its current pod, its report, what is wrong with it."""

    index: int
    group: GroupView | None = None
    pod: PodView | None = None
    report: RankReport | None = None
    fault: Fault | None = None

    @property
    def host(self) -> str:
        """Address of its pod; empty while there is none."""
        return self.pod.ip if self.pod is not None and self.pod.alive else ""

    @property
    def node(self) -> str:
        """The server that it runs on, or is meant for; empty while it has no place."""
        bound = self.pod.node if self.pod is not None else ""
        return bound or (self.group.node if self.group is not None else "")


@dataclass(frozen=True, slots=True)
class InstanceView:
    """One replica.

    ``draining`` counts pods and DP groups of it that still end; ``epoch`` is the highest one known, 0 for an instance
    that never had a membership.
    """

    name: str
    replica: int
    ranks: tuple[RankView, ...]
    shell: PodView | None = None
    report: ShellStatus | None = None
    draining: int = 0
    epoch: int = 0

    @property
    def placed(self) -> bool:
        """Whether every DP group has a place."""
        return all(rank.group is not None for rank in self.ranks)

    @property
    def holds_dies(self) -> bool:
        """Whether any DP group has a place."""
        return any(rank.group is not None for rank in self.ranks)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """What is wrong with its ranks."""
        return tuple(rank.fault for rank in self.ranks if rank.fault is not None)

    @property
    def revision(self) -> str:
        """Revision of its DP groups; they share one, or it is an old one that is being left."""
        return next((rank.group.revision for rank in self.ranks if rank.group is not None), "")

    @property
    def leaving(self) -> Departure | None:
        """Since when it gets no new requests; marked on one of its DP groups, it holds for all."""
        marks = (rank.group.leaving for rank in self.ranks if rank.group is not None)
        return next((mark for mark in marks if mark is not None), None)

    @property
    def idle(self) -> bool:
        """Whether all of its engines say that they have no request."""
        said = [rank.report.status if rank.report is not None else None for rank in self.ranks]
        return all(status is not None and status.running + status.waiting == 0 for status in said)

    @property
    def serves(self) -> bool:
        """Whether it may get new requests."""
        return self.ready and self.leaving is None

    @property
    def ready(self) -> bool:
        """Whether it works: every rank of today serves in the shell's epoch, and no hardware failed under one."""
        report = self.report
        if report is None or not report.ready or self.faults or not self.placed:
            return False
        return all(
            rank.report is not None
            and rank.report.status is not None
            and rank.report.status.epoch == report.epoch
            and rank.report.status.state == "Serving"
            for rank in self.ranks
        )

    def has_revision(self, revision: str) -> bool:
        """Whether all of it that has a place runs ``revision``."""
        return all(rank.group.revision == revision for rank in self.ranks if rank.group is not None)
