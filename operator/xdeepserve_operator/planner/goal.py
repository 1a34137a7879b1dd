"""What a TaskExecutor's replicas should be: how many, each at which revision.

The spec names the ``target`` revision; ``stable`` is the one that every replica had last (the target, once a rollout
is complete). Numbers below ``partition`` keep the stable one. While replicas of an old revision are to be replaced,
up to ``maxSurge`` more of the target's exist, numbered from ``replicas`` on. Pausing keeps what is there.

``made_at`` says at which revision a replica is made, or completed, now. It depends on objects only, never on what
engines report, so that whoever plans places for all TaskExecutors comes to the same answer as the one who asks.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from xdeepserve_operator.api.v1alpha1.update import UpdateStrategy


@dataclass(frozen=True, slots=True)
class Goal:
    """The aim of a rollout."""

    replicas: int
    target: str
    stable: str
    strategy: UpdateStrategy
    paused: bool = False

    def fits(self, replica: int, revision: str) -> bool:
        """Whether a replica of ``revision`` is as it shall be in the end."""
        return revision == self.target or replica < self.strategy.partition

    def movable(self, replica: int, revision: str) -> bool:
        """Whether a replica is to be replaced, as soon as the budget lets it."""
        return not self.paused and replica < self.replicas and not self.fits(replica, revision)

    def is_surge(self, replica: int) -> bool:
        """Whether the number is one that only a rollout uses."""
        return self.replicas <= replica < self.replicas + self.strategy.max_surge

    def made_at(self, held: Mapping[int, str]) -> dict[int, str]:
        """Replicas to make or to complete now, with their revision; ``held`` is that of those that exist and stay.

        One that is to be replaced is not completed.
        """
        wanted: dict[int, str] = {}
        for replica in range(self.replicas):
            keeps = self.paused or replica < self.strategy.partition
            revision = held.get(replica, self.stable if keeps else self.target)
            if not self.movable(replica, revision):
                wanted[replica] = revision
        old = sum(self.movable(replica, revision) for replica, revision in held.items())
        for replica in range(self.replicas, self.replicas + min(old, self.strategy.max_surge)):
            wanted[replica] = self.target
        if self.paused:
            surge = [one for one, revision in held.items() if self.is_surge(one) and revision == self.target]
            wanted |= dict.fromkeys(surge, self.target)
        return wanted


def stable_revision(target: str, last: str, known: bool) -> str:
    """The revision that replicas had before ``target``: ``last`` complete one, if it is still ``known``."""
    return last if last and known else target
