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

    def serving(self, membership: Membership) -> list[tuple[Member, EngineStatus]]:
        """The members that serve in the membership's epoch and have been heard lately."""
        oldest = self._clock() - self._patience
        heard = {
            rank.status.incarnation: rank.status for rank in self._ranks.values() if rank.status and rank.since > oldest
        }
        known = ((member, heard.get(member.incarnation)) for member in membership.members)
        return [
            (member, status)
            for member, status in known
            if status is not None and status.state == "Serving" and status.epoch == membership.epoch
        ]


def behind(status: EngineStatus, membership: Membership) -> bool:
    """Whether a rank is a member that has not heard of ``membership`` yet."""
    incarnations = {member.incarnation for member in membership.members}
    return status.state != "Loading" and status.epoch < membership.epoch and status.incarnation in incarnations
