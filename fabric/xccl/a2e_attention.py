"""The attention die's side of A2E and E2A; see `a2e_die` for the protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from xccl.a2e_die import Die
from xccl.a2e_layout import Way
from xccl.errors import Broken
from xccl.routing import Floats, Integers, Route, route, weighted_sum
from xccl.steps import Steps

IN_FLIGHT: Final = 2


@dataclass(frozen=True)
class Sent:
    """One micro-batch under way: what `Attention.e2a` needs to bring it back. `counts`: rows for each trampoline."""

    event: int
    route: Route
    offsets: tuple[int, ...]
    counts: tuple[int, ...]


class Attention(Die):
    """An attention die: `a2e` sends, `e2a` brings back, at most two micro-batches at a time, in their order."""

    _sent = 0
    _back = 0

    def a2e(self, x: Floats, expert_ids: Integers, owner: Integers) -> Steps[Sent]:
        """Offer each token to the dies of its experts; done when everybody was told. See `AttentionGroup.a2e`."""
        if self._sent - self._back >= IN_FLIGHT:
            raise Broken(f"{IN_FLIGHT} micro-batches are under way; bring the first one back with e2a")
        plan = self._plan
        sorted_pairs = route(expert_ids, plan.place[owner], plan.experts)
        counts = np.add.reduceat(sorted_pairs.counts, plan.first_places)
        offsets = np.cumsum(counts) - counts
        self._sent += 1
        sent = Sent(self._sent, sorted_pairs, tuple(offsets.tolist()), tuple(counts.tolist()))
        at_targets, at_tokens = self._map.offered(sent.event)
        dies = plan.order[np.repeat(np.arange(plan.experts), sorted_pairs.counts)]
        yield from self._own.write(at_targets, np.stack([dies, sorted_pairs.experts], axis=1))
        yield from self._own.write(at_tokens, x[sorted_pairs.tokens])
        for step in range(plan.trampolines):  # not all begin with the same one
            die = (self._rank + step) % plan.trampolines
            yield from self._tell(Way.A2E, plan.rank(die), sent.event, sent.offsets[die], sent.counts[die])
        return sent

    def e2a(self, sent: Sent, weights: Floats) -> Steps[Floats]:
        """Wait for the results of `sent` and sum them by weight. See `AttentionGroup.e2a`."""
        if sent.event != self._back + 1:
            raise Broken(f"micro-batch {self._back + 1} comes back next, not {sent.event}")
        ranks = [self._plan.rank(die) for die in range(self._plan.trampolines)]
        rows = yield from self._results(ranks, sent.event, sent.counts)
        self._back = sent.event
        return weighted_sum(rows, sent.route.order, weights)
