"""Who is in an instance: the roster its TE-shell listens to, and the membership it spreads.

A new epoch begins when the set of (rank, incarnation) differs from the one in force, or when a rank is Broken in the
epoch in force although every rank is alive (a peer was lost and came back). It needs every rank: placed, with an
address, heard at that address just now, past loading. The number is one above every epoch that anybody has seen, so
it only grows, whoever restarts.

The membership in force is what was last sent; after a restart of the operator it is read back from ranks that report
the shell's epoch, for an engine joins an epoch only under its own incarnation. If that leaves a rank unknown, a new
epoch is the safe answer. The same epoch is sent again to a shell that lost it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from flowserve.wire import EngineStatus, Member, Membership, Roster, RosterEntry
from xdeepserve_operator.planner.instance import InstanceView, RankView

ALIVE_SECONDS = 2.0  # a few heartbeats


@dataclass(frozen=True, slots=True)
class Wait:
    """Why there can be no membership yet."""

    reason: str


@dataclass(frozen=True, slots=True)
class InForce:
    """Nothing to send: the shell spreads what should be."""


def roster_for(view: InstanceView) -> Roster | None:
    """The roster to send; None when the shell already listens to these processes, or cannot be reached."""
    if view.report is None:
        return None
    entries = tuple(RosterEntry(rank=rank.index, host=rank.host) for rank in view.ranks if rank.host)
    known = {(report.rank, report.host) for report in view.report.ranks}
    if known == {(entry.rank, entry.host) for entry in entries}:
        return None
    return Roster(instance=view.name, entries=entries)


def membership_for(view: InstanceView, last: Membership | None, refused: int = 0) -> Membership | InForce | Wait:
    """The membership to send to the instance's shell.

    ``last`` is what was sent before, if that is remembered; ``refused`` is an epoch that the shell would not take.
    """
    report = view.report
    if report is None:
        return Wait(f"TE-shell of {view.name} does not answer")
    members: list[Member] = []
    statuses: list[EngineStatus] = []
    for rank in view.ranks:
        status = _voice(rank)
        if isinstance(status, Wait):
            return status
        statuses.append(status)
        members.append(
            Member(rank=rank.index, host=rank.host, incarnation=status.incarnation, fabric_uri=status.fabric_uri)
        )
    highest = max([report.epoch, view.epoch, refused, *(status.epoch for status in statuses)])
    following = Membership(instance=view.name, epoch=highest + 1, members=tuple(members))
    if last is None:
        last = _read_back(view.name, report.epoch or highest, statuses, following)
    if last is None or last.epoch < highest or last.epoch == refused or last.members != following.members:
        return following
    if any(status.state == "Broken" and status.epoch == last.epoch for status in statuses):
        return following
    return InForce() if report.epoch == last.epoch else last


def _voice(rank: RankView) -> EngineStatus | Wait:
    """What the engine of a rank says of itself, or why it cannot be a member yet."""
    if rank.group is None:
        return Wait(f"rank {rank.index} has no place")
    if rank.fault is not None:
        return Wait(rank.fault.message)
    if not rank.host:
        return Wait(f"rank {rank.index}: no address yet")
    if rank.report is None or rank.report.status is None or not rank.report.ever_heard:
        return Wait(f"rank {rank.index}: not heard yet")
    if rank.report.silent_seconds > ALIVE_SECONDS:
        return Wait(f"rank {rank.index}: silent")
    if rank.report.status.state == "Loading":
        return Wait(f"rank {rank.index}: loading the checkpoint")
    return rank.report.status


def _read_back(instance: str, epoch: int, statuses: Iterable[EngineStatus], following: Membership) -> Membership | None:
    """The membership of ``epoch``, when every rank says that it joined it."""
    if epoch < 1 or any(status.epoch != epoch for status in statuses):
        return None
    return Membership(instance=instance, epoch=epoch, members=following.members)
