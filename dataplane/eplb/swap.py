"""One change of placement as every rank of a group goes through it. Ranks agree by what they say in votes, and by
nothing else.

    idle --offer--> prefetch --all say "fetched": DISABLE--> load --all say "loaded": ENABLE--> idle, in force
                        |                                      |
                        +-----------anyone says "failed": ROLLBACK-----------> idle, as before

A vote is a barrier between two iterations in which every rank learns what all have said, so every rank takes the same
step between the same two iterations. Invariants, held by a test that explores everything that can happen:
* after a vote all ranks are in the same phase of the same version, but for those that the offer has not reached;
* the old placement can be used whole until ENABLE: nothing of it is given away before;
* a version that one rank has given up is given up by all, also by those that hear of it later;
* whoever cannot go on, or has waited too long, says "failed" once; nobody waits for a rank that is gone, since a vote
  that does not come about ends the group, and the next epoch begins with a new ``Swap``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum

MAX_VERSION = (1 << 56) - 1
_SAID_BITS = 2


class Phase(Enum):
    """What a rank is at: fetching weights into staging buffers, or loading them into slots that are switched off."""

    IDLE = "Idle"
    PREFETCH = "Prefetch"
    LOAD = "Load"


class Step(Enum):
    """What a rank does to its replica map after a vote."""

    NOTHING = "Nothing"
    DISABLE = "Disable"
    ENABLE = "Enable"
    ROLLBACK = "Rollback"


class _Said(IntEnum):
    NOTHING = 0
    FETCHED = 1
    LOADED = 2
    FAILED = 3


class NotTaken(Exception):
    """An offer that cannot be taken; the message says why."""


@dataclass(frozen=True)
class Swap:
    """One rank's view. ``version``: in force; ``target``: on its way, 0 for none; ``given_up``: the highest version
    that failed; ``ready``: the rank has done its part of the phase; ``failed``: it cannot."""

    version: int = 0
    target: int = 0
    given_up: int = 0
    phase: Phase = Phase.IDLE
    ready: bool = False
    failed: bool = False

    @property
    def word(self) -> int:
        """What to say in the next vote: at most 58 bits."""
        return (self.target or self.version) << _SAID_BITS | self._said

    @property
    def speaks(self) -> bool:
        """Whether the word is news for the others."""
        return self._said is not _Said.NOTHING

    @property
    def _said(self) -> _Said:
        if self.failed:
            return _Said.FAILED
        if not self.ready:
            return _Said.NOTHING
        return _Said.FETCHED if self.phase is Phase.PREFETCH else _Said.LOADED

    def offer(self, version: int) -> Swap:
        """Begins the change to ``version``; the same one again is harmless. Raises NotTaken."""
        if version in (self.version, self.target) and version:
            return self
        if self.target:
            raise NotTaken(f"the change to version {self.target} is under way; wait for its end")
        if version <= self.given_up:
            raise NotTaken(f"version {version} was given up; send a version above {self.given_up}")
        if not self.version < version <= MAX_VERSION:
            raise NotTaken(f"version {version} is not above version {self.version}, which is in force")
        return replace(self, target=version, phase=Phase.PREFETCH, ready=False)

    def done(self) -> Swap:
        """The rank's part of the phase is done."""
        assert self.target
        return replace(self, ready=True)

    def fail(self) -> Swap:
        """The rank cannot go on with the change, or will not; nothing happens without one."""
        return replace(self, failed=True) if self.target else self

    def hear(self, words: Sequence[int]) -> tuple[Swap, Step]:
        """What follows from a vote, in which this rank has said its own ``word``."""
        said = [(word >> _SAID_BITS, word & ((1 << _SAID_BITS) - 1)) for word in words]
        given_up = max([self.given_up, *(version for version, code in said if code == _Said.FAILED)])
        if not self.target:
            return replace(self, given_up=given_up), Step.NOTHING
        if self.target <= given_up:
            return Swap(self.version, given_up=given_up), Step.ROLLBACK
        awaited = _Said.FETCHED if self.phase is Phase.PREFETCH else _Said.LOADED
        if any(one != (self.target, awaited) for one in said):
            return replace(self, given_up=given_up), Step.NOTHING
        if self.phase is Phase.PREFETCH:
            return replace(self, phase=Phase.LOAD, ready=False, given_up=given_up), Step.DISABLE
        return Swap(self.target, given_up=given_up), Step.ENABLE
