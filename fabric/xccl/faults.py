"""Faults of links, injected on purpose: what happens to the operations of one endpoint on the memory of one peer.

    delay      every operation starts so much later
    slow       every operation takes so many times as long
    drop       an operation gets lost: a store or write never arrives, an answer never comes
    corrupt    one bit turns over on the way, in what is written or in what comes back
    cut        nothing comes through until the link is mended: LinkBroken, on the waiting side too
    flap       a cut that mends itself

A link has a direction: both endpoints must cut theirs for a cable that is pulled out. Chance comes from a seed, so
that a run repeats itself. The transport below does not matter; without faults nothing of this is in the way.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from xccl.errors import LinkBroken
from xccl.steps import Steps

FOR_EVER: Final = float("inf")


@dataclass
class Disturbance:
    """What is wrong with a link: seconds, a factor of at least 1, probabilities for one operation."""

    delay: float = 0.0
    slow: float = 1.0
    drop: float = 0.0
    corrupt: float = 0.0

    def __post_init__(self) -> None:
        fits = self.delay >= 0 and self.slow >= 1 and 0 <= self.drop <= 1 and 0 <= self.corrupt <= 1
        if not fits:
            raise ValueError(f"{self}: delay must be at least 0, slow at least 1, drop and corrupt within 0 and 1")


class FaultyLink:
    """The way from this endpoint to one peer. Change `disturbance` at any time; later operations feel it."""

    def __init__(self, seed: int, clock: Callable[[], float]) -> None:
        self.disturbance = Disturbance()
        self._random = random.Random(seed)
        self._clock = clock
        self._down_until = 0.0

    @property
    def down(self) -> bool:
        """Whether nothing comes through now."""
        return self._clock() < self._down_until

    def cut(self) -> None:
        """Nothing comes through until `mend`."""
        self._down_until = FOR_EVER

    def flap(self, seconds: float) -> None:
        """Nothing comes through for so long."""
        self._down_until = self._clock() + seconds

    def mend(self) -> None:
        """Nothing is wrong any more."""
        self._down_until = 0.0
        self.disturbance = Disturbance()

    def broken(self, rank: int) -> LinkBroken:
        """The error of an operation that finds the link down."""
        return LinkBroken(rank, "nothing comes through the link")

    def starts(self, rank: int) -> Steps[float]:
        """The beginning of an operation; returns when it began. Raises LinkBroken."""
        began = self._clock()
        yield from self._wait_until(began + self.disturbance.delay, rank)
        return began

    def ends(self, began: float, rank: int) -> Steps[None]:
        """The end of an operation that began then, by the link's pace. Raises LinkBroken."""
        delay, slow = self.disturbance.delay, self.disturbance.slow
        taken = self._clock() - began - delay
        yield from self._wait_until(began + delay + max(0.0, taken) * slow, rank)

    def loses(self) -> bool:
        """Whether this operation gets lost."""
        return self._random.random() < self.disturbance.drop

    def lose(self, rank: int) -> Steps[None]:
        """Wait for an answer that never comes. Raises LinkBroken once the link is down."""
        yield from self._wait_until(FOR_EVER, rank)

    def damages(self, bits: int) -> int | None:
        """The number of the bit that turns over in something of so many bits, if one does."""
        if bits and self._random.random() < self.disturbance.corrupt:
            return self._random.randrange(bits)
        return None

    def _wait_until(self, due: float, rank: int) -> Steps[None]:
        fresh = True
        while True:
            if self.down:
                raise self.broken(rank)
            if self._clock() >= due:
                return
            yield fresh
            fresh = False


class Faults:
    """The links of one endpoint, by the incarnation of the peer; all are well until somebody disturbs them."""

    def __init__(self, *, seed: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._seed = seed
        self._clock = clock
        self._links: dict[str, FaultyLink] = {}

    def link(self, incarnation: str) -> FaultyLink:
        """The link to that peer."""
        if incarnation not in self._links:
            self._links[incarnation] = FaultyLink(self._seed + len(self._links), self._clock)
        return self._links[incarnation]
