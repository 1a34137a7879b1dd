"""One iteration: a forward pass over whatever can run, committed whole or not at all."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from flowserve import garbage
from flowserve.engine.role import Advance, Role
from flowserve.engine.scheduler import Scheduler
from flowserve.model import Experts
from xccl import arun


@dataclass
class Tally:
    """Since the process started: iterations that were committed, and tokens, of prompts and answers."""

    iterations: int = 0
    tokens: int = 0  # computed
    looked_up: int = 0  # of prompts, in the prefix cache
    found: int = 0  # there
    drafted: int = 0  # by MTP, and verified
    accepted: int = 0  # of those
    longest_pause: float = 0.0  # seconds that collecting Python's garbage took, between two iterations

    def count(self, advances: list[Advance]) -> None:
        """An iteration that is about to be committed."""
        self.iterations += 1
        for advance in advances:
            self.tokens += advance.computed
            self.drafted += len(advance.sequence.drafts)
            self.accepted += max(len(advance.chosen) - 1, 0)


@dataclass
class Iterations:
    """The ``lockstep.Work`` of an engine, with the experts of one epoch; ``changed`` admits what fits now."""

    scheduler: Scheduler
    role: Role
    experts: Experts
    tally: Tally
    changed: Callable[[], None]

    @property
    def has_work(self) -> bool:
        return self.scheduler.has_work

    async def iterate(self) -> None:
        """Runs one iteration. Raises what the fabric raises, with every sequence as it was before."""
        batch = self.scheduler.begin(self.role.most)
        try:
            advances = await arun(self.role.step(batch, self.experts), timeout=math.inf)
            self.tally.count(advances)
            for advance in advances:
                advance.commit()
        finally:
            remaining = self.scheduler.end()
            self.changed()  # those cancelled meanwhile have left their places to others
        for sequence in remaining:
            self.role.deliver(sequence)
        self.tally.longest_pause = max(self.tally.longest_pause, garbage.tidy())
