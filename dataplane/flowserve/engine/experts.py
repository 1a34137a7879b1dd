"""The routed experts of an instance, spread over its ranks in contiguous blocks, and reached by dispatch and combine.

A token goes to the ranks that own its experts, once an expert; they run the experts on what arrived; the results
come back and are summed with the token's gates. Dispatch and combine are full barriers in which every rank takes
part, with or without tokens. Only they have a time limit: what a rank computes itself may take as long as it takes.
"""

from __future__ import annotations

import numpy as np

from flowserve.model import ExpertWeights, FloatArray, IntArray, run_experts
from xccl import Group, Steps, within


def owners(experts: int, ranks: int) -> IntArray:
    """The rank of each expert, i32[experts]: blocks whose sizes differ by one at most."""
    return (np.arange(experts) * ranks // experts).astype(np.int32)


def owned(experts: int, ranks: int, rank: int) -> tuple[int, ...]:
    """The experts of one rank."""
    return tuple(np.flatnonzero(owners(experts, ranks) == rank).tolist())


class DistributedExperts:
    """``flowserve.model.Experts`` over a group; a rank that a barrier waits for longer than ``timeout`` s is lost."""

    def __init__(self, group: Group, weights: ExpertWeights, experts: int, timeout: float) -> None:
        self._group = group
        self._weights = weights
        self._owner = owners(experts, group.size)
        self._timeout = timeout

    def __call__(self, layer: int, x: FloatArray, expert_ids: IntArray, weights: FloatArray) -> Steps[FloatArray]:
        """See ``flowserve.model.Experts``. Raises the errors of ``xccl.Group``."""
        dispatched = yield from within(self._group.dispatch(x, expert_ids, self._owner), timeout=self._timeout)
        y = run_experts(self._weights, layer, dispatched.tokens, dispatched.experts)
        return (yield from within(self._group.combine(y, dispatched, weights), timeout=self._timeout))
