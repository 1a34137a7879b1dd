"""From what was counted and where experts are to a better placement: ``eplb.plan`` in the API's words.

Imported when there is something to plan, since it brings NumPy with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eplb import BUDGETS, EMPTY, Cluster, LoadWindow, Options, Placement, Plan, Unplannable, plan
from flowserve.wire_experts import ExpertSlice, ExpertTable
from xdeepserve_operator.api.v1alpha1.experts import ExpertPlacementSpec
from xdeepserve_operator.planner.expert_map import NoPlan, Slots


@dataclass(frozen=True)
class Proposal:
    """``layers``: those that change. Imbalances over the window, 1 is even; ``seconds`` on the wire."""

    layers: Mapping[int, Slots]
    before: float
    predicted: float
    moves: int
    nbytes: int
    seconds: float

    @property
    def gain(self) -> float:
        """The part of the barrier's time that it saves, 0 to 1."""
        return 1 - self.predicted / self.before


def propose(spec: ExpertPlacementSpec, table: ExpertTable, slices: Sequence[ExpertSlice]) -> Proposal:
    """A placement that is never worse than ``table`` on ``slices``, at least one. Raises NoPlan."""
    try:
        result = _planned(spec, table, slices)
    except Unplannable as error:
        raise NoPlan(str(error)) from error
    assert result.before is not None
    assert result.cost is not None
    return Proposal(
        layers={
            table.layers[row].layer: tuple(map(tuple, result.placement.slots[row].tolist())) for row in result.changed
        },
        before=result.before.mean,
        predicted=result.predicted.mean,
        moves=result.cost.moves,
        nbytes=result.cost.bytes,
        seconds=result.cost.seconds,
    )


def _planned(spec: ExpertPlacementSpec, table: ExpertTable, slices: Sequence[ExpertSlice]) -> Plan:
    ranks = len(table.layers[0].slots)
    closed = frozenset(rank for rank in spec.evacuate if rank < ranks)
    base = -(-table.experts // max(ranks - len(closed), 1))
    width = max(base + spec.redundant_slots, *(len(each.slots[0]) for each in table.layers))
    slots = np.full((len(table.layers), ranks, width), EMPTY, np.int32)
    for row, each in enumerate(table.layers):
        slots[row, :, : len(each.slots[0])] = each.slots
    policy = spec.policy
    pinned = np.arange(width)[None] < np.full((ranks, 1), base) if policy.base_experts == "Pinned" else None
    if pinned is not None:
        pinned[list(closed)] = False
    return plan(
        LoadWindow.of(np.array([each.chosen for each in slices]), table.top_k),
        Cluster(ranks, width, excluded=closed),
        Placement.of(slots, table.experts),
        name=policy.name,
        options=Options(budget=BUDGETS[policy.budget], moves=policy.max_moves_per_layer),
        pinned=pinned,
        expert_bytes=table.expert_bytes,
    )
