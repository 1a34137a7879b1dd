"""The states of an engine, and which membership it follows. No I/O, no clock.

    Loading --loaded--> Waiting --offer--> Joining --joined--> Serving
                                              |                   |
                                              +------broke--------+--> Broken
    and from every state but Loading a newer membership leads to Joining.

A membership is followed if it obeys the epoch rule, is meant for this instance, and names this very process: a
restarted engine is another member, since nothing that its peers mapped exists any more.
"""

from __future__ import annotations

from flowserve.epoch import Refused, supersedes
from flowserve.wire import EngineState, Member, Membership


class Lifecycle:
    """One engine's state. ``incarnation`` is new with every process."""

    def __init__(self, instance: str, incarnation: str, max_ranks: int) -> None:
        self.incarnation = incarnation
        self.state: EngineState = "Loading"
        self.membership: Membership | None = None
        self.error = ""
        self._instance = instance
        self._max_ranks = max_ranks

    @property
    def epoch(self) -> int:
        """Of the membership that is followed; 0 before the first."""
        return self.membership.epoch if self.membership else 0

    @property
    def member(self) -> Member:
        """This engine's own entry in the membership that it follows."""
        assert self.membership is not None
        return next(each for each in self.membership.members if each.incarnation == self.incarnation)

    def loaded(self) -> None:
        self.state = "Waiting"

    def offer(self, membership: Membership) -> bool:
        """Follows ``membership`` if it is new; False if it is followed already. Raises Refused."""
        self._check(membership)
        if not supersedes(membership, self.membership):
            return False
        self.membership, self.state, self.error = membership, "Joining", ""
        return True

    def joined(self) -> None:
        self.state = "Serving"

    def broke(self, reason: str) -> None:
        """The group of the epoch can no longer work; whatever runs is held for the next one."""
        self.state, self.error = "Broken", reason

    def _check(self, membership: Membership) -> None:
        if self.state == "Loading":
            raise Refused("the engine is still loading its model; wait until it reports state Waiting")
        if membership.instance != self._instance:
            raise Refused(f"the membership is for instance {membership.instance}, this engine is of {self._instance}")
        ranks = sorted(member.rank for member in membership.members)
        if ranks != list(range(len(ranks))):
            raise Refused(f"ranks must be 0..{len(ranks) - 1}, each once, not {ranks}")
        if len(ranks) > self._max_ranks:
            raise Refused(f"{len(ranks)} ranks are more than max_ranks = {self._max_ranks} of this engine")
        incarnations = {member.incarnation for member in membership.members}
        if len(incarnations) != len(ranks):
            raise Refused("two ranks have the same incarnation")
        if self.incarnation not in incarnations:
            raise Refused(f"incarnation {self.incarnation} of this engine is not in the membership")
