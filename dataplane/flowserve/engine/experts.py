"""The routed experts of an instance, spread over its ranks' slots, and reached by dispatch and combine.

A token goes to the ranks that have its experts, once an expert; they run the experts on what arrived; the results
come back and are summed with the token's gates. Which rank, where an expert has copies, says the map in force; a
result is the same, bit for bit, whichever copy made it. Dispatch and combine are full barriers in which every rank
takes part, with or without tokens. Only they have a time limit: what a rank computes itself may take as long as it
takes. A layer that the map does not name is held whole by every rank, and needs neither.
"""

from __future__ import annotations

from typing import Protocol

from flowserve.engine.expert_load import ExpertCounts
from flowserve.engine.expert_map import ExpertMap
from flowserve.model import ExpertWeights, FloatArray, IntArray, LocalExperts, run_experts
from xccl import Group, Steps, within


class Mapped(Protocol):
    """Who knows the map of this iteration."""

    @property
    def map(self) -> ExpertMap: ...


class DistributedExperts:
    """``flowserve.model.Experts`` over a group; a rank that a barrier waits for longer than ``timeout`` s is lost."""

    def __init__(
        self, group: Group, weights: ExpertWeights, placed: Mapped, counts: ExpertCounts, timeout: float
    ) -> None:
        self._group = group
        self._weights = weights
        self._whole = LocalExperts(weights)
        self._placed = placed
        self._counts = counts
        self._timeout = timeout

    def __call__(self, layer: int, x: FloatArray, expert_ids: IntArray, weights: FloatArray) -> Steps[FloatArray]:
        """See ``flowserve.model.Experts``. Raises the errors of ``xccl.Group``."""
        at = self._placed.map.layers.get(layer)
        if at is None:
            return (yield from self._whole(layer, x, expert_ids, weights))
        slots = at.physical(expert_ids, self._group.rank)
        dispatched = yield from within(self._group.dispatch(x, slots, at.owner), timeout=self._timeout)
        self._counts.add(layer, expert_ids, len(dispatched.tokens))
        y = run_experts(self._weights, layer, dispatched.tokens, at.experts(dispatched.experts))
        return (yield from within(self._group.combine(y, dispatched, weights), timeout=self._timeout))
