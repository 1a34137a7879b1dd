"""What a TE-shell knows of the ranks on its roster, and for how long they have been silent. Pure: the clock is given.

An answer to ``/v1/status`` is a heartbeat. It comes from the engine's own event loop, so an engine that hangs is
silent although its process lives. Silence counts from the last answer, or from when the rank was put on the roster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flowserve.wire import EngineStatus, Member, Membership, RankReport, RosterEntry


@dataclass
class _Rank:
    since: float
    status: EngineStatus | None = None


@dataclass(frozen=True)
class Serving:
    """A member that takes requests: its last answer, and when that came."""

    member: Member
    status: EngineStatus
    heard: float


class Heartbeats:
    """``clock`` counts seconds and never goes back; a rank silent for ``patience`` seconds is not counted on."""

    def __init__(self, clock: Callable[[], float], patience: float) -> None:
        self._clock = clock
        self._patience = patience
        self._ranks: dict[RosterEntry, _Rank] = {}

    @property
    def entries(self) -> tuple[RosterEntry, ...]:
        return tuple(self._ranks)

    def follow(self, entries: tuple[RosterEntry, ...]) -> None:
        """Replaces the roster; what is known of entries that stay is kept."""
        now = self._clock()
        self._ranks = {entry: self._ranks.get(entry) or _Rank(now) for entry in entries}

    def heard(self, entry: RosterEntry, status: EngineStatus) -> None:
        """A rank has answered; ignored if it left the roster meanwhile."""
        if (rank := self._ranks.get(entry)) is not None:
            rank.since, rank.status = self._clock(), status

    def reports(self) -> tuple[RankReport, ...]:
        """All ranks, by number."""
        now = self._clock()
        return tuple(
            RankReport(
                rank=entry.rank,
                host=entry.host,
                silent_seconds=max(now - rank.since, 0.0),
                ever_heard=rank.status is not None,
                status=rank.status,
            )
            for entry, rank in sorted(self._ranks.items(), key=lambda item: item[0].rank)
        )

    def serving(self, membership: Membership) -> list[Serving]:
        """The members that serve in the membership's epoch and have been heard lately."""
        oldest = self._clock() - self._patience
        members = {member.incarnation: member for member in membership.members}
        return [
            Serving(members[status.incarnation], status, rank.since)
            for rank in self._ranks.values()
            if (status := rank.status) is not None
            and rank.since > oldest
            and status.incarnation in members
            and (status.state, status.epoch) == ("Serving", membership.epoch)
        ]


def behind(status: EngineStatus, membership: Membership) -> bool:
    """Whether a rank is a member that has not heard of ``membership`` yet."""
    incarnations = {member.incarnation for member in membership.members}
    return status.state != "Loading" and status.epoch < membership.epoch and status.incarnation in incarnations
