"""The loop that keeps a rank in step with the other ranks of its epoch.

Every turn begins with a vote. If any rank has work, all run one iteration: one forward pass, in which a rank without
work of its own computes nothing but still takes part in every collective. If none has, all park: no iteration, no
polling, no vote, until there is something to do.

A parked rank wakes when work arrives here, or when a peer rings. Whoever has work votes first and rings after, so a
rank that is rung finds the vote in its memory (``pending``). No wake-up is lost: a rank clears its wake-up, and then
looks for work and for pending votes before it waits; what came earlier it sees, and what comes later sets the wake-up
again. A ring may be lost, since it is a datagram, so it is repeated while the vote waits. A wake-up too many costs one
look.

What else ranks must agree on between two iterations travels in the same votes (``Agreement``): a rank that has news
votes as if it had work, and if that is all there was, all park again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NoReturn, Protocol

from xccl import Steps

RING_AGAIN_AFTER = 0.01  # seconds, doubled each time


class Votes(Protocol):
    """What the loop needs of ``xccl.Group``."""

    def vote(self, word: int) -> Steps[tuple[int, ...]]: ...

    def pending(self) -> bool: ...


class Work(Protocol):
    """What this rank has to do. ``iterate`` runs one iteration, perhaps without work: all of it or nothing."""

    @property
    def has_work(self) -> bool: ...

    async def iterate(self) -> None: ...


class Agreement(Protocol):
    """What ranks agree on beside their work. ``news``: this rank has something to say that it has not said yet."""

    @property
    def news(self) -> bool: ...

    def say(self) -> int:
        """This rank's word for the next vote, at most 62 bits."""
        ...

    def heard(self, words: tuple[int, ...]) -> None:
        """The words of all ranks, its own among them. Called between two iterations, on every rank."""
        ...


class Wake(Protocol):
    """What the loop needs of ``asyncio.Event``."""

    def clear(self) -> None: ...

    async def wait(self) -> object: ...


class Lockstep:
    """One rank in one epoch. ``ring`` wakes the other ranks, ``wake`` is set when this one may have something to do.

    ``drive`` runs a vote to its end while the event loop goes around, and gives up on a peer that is too late.
    """

    def __init__(
        self,
        votes: Votes,
        work: Work,
        agreement: Agreement,
        wake: Wake,
        ring: Callable[[], None],
        drive: Callable[[Steps[tuple[int, ...]]], Awaitable[tuple[int, ...]]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._votes = votes
        self._work = work
        self._agreement = agreement
        self._wake = wake
        self._ring = ring
        self._drive = drive
        self._clock = clock

    async def run(self) -> NoReturn:
        """Runs until it is cancelled or a peer is lost, which raises the group's error."""
        parked = False
        while True:
            self._wake.clear()
            if parked and not self._urgent and not self._votes.pending():
                await self._wake.wait()
                continue
            parked = not await self._anyone_has_work(parked)
            if not parked:
                await self._work.iterate()
            await asyncio.sleep(0)  # the ports, the transfers and the output process have their turn

    @property
    def _urgent(self) -> bool:
        return self._work.has_work or self._agreement.news

    async def _anyone_has_work(self, parked: bool) -> bool:
        urgent = self._urgent
        vote = self._votes.vote(self._agreement.say() << 1 | int(self._work.has_work))
        words = await self._drive(self._ringing(vote) if parked and urgent else vote)
        self._agreement.heard(tuple(word >> 1 for word in words))
        return any(word & 1 for word in words)

    def _ringing(self, vote: Steps[tuple[int, ...]]) -> Steps[tuple[int, ...]]:
        """``vote``, ringing the peers as long as it waits for them."""
        pause, due = RING_AGAIN_AFTER, self._clock()
        while True:
            try:
                fresh = next(vote)
            except StopIteration as stop:
                result: tuple[int, ...] = stop.value
                return result
            if self._clock() >= due:
                self._ring()
                due = self._clock() + pause
                pause *= 2
            yield fresh
