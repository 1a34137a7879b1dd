"""From what was counted and where experts are to a better placement: ``eplb.plan`` in the API's words.

Imported when there is something to plan, since it brings NumPy with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eplb import EMPTY, Cluster, LoadWindow, Placement, Unplannable
from eplb.plan import Plan, plan
from eplb.policies import Options
from eplb.search import BUDGETS
from flowserve.wire_experts import MAX_SLOTS, ExpertSlice, ExpertTable
from xdeepserve_operator.api.v1alpha1.experts import ExpertPlacementSpec
from xdeepserve_operator.planner.expert_map import NoPlan, Slots
from xdeepserve_operator.planner.expert_ranks import Ranks


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


def propose(
    spec: ExpertPlacementSpec,
    table: ExpertTable,
    slices: Sequence[ExpertSlice],
    ranks: Ranks | None = None,
    *,
    rows: float = 0.0,
    fewest: bool = False,
) -> Proposal:
    """A placement that is never worse than ``table`` on ``slices``, but where ``ranks`` ask for it. Raises NoPlan.

    Without slices all experts count as equally busy. ``rows``: pairs a rank, layer and iteration, 0 if unknown.
    ``fewest``: what has to move does, and little else.
    """
    ranks = ranks or Ranks.of(spec, frozenset(), ("",) * len(table.layers[0].slots))
    try:
        result, order = _planned(spec, ranks, table, slices, rows, fewest)
    except Unplannable as error:
        raise NoPlan(str(error)) from error
    assert result.before is not None
    assert result.cost is not None
    slots = result.placement.slots[:, np.argsort(order)]
    return Proposal(
        layers={table.layers[row].layer: tuple(map(tuple, slots[row].tolist())) for row in result.changed},
        before=result.before.mean,
        predicted=result.predicted.mean,
        moves=result.cost.moves,
        nbytes=result.cost.bytes,
        seconds=result.cost.seconds,
    )


def _planned(
    spec: ExpertPlacementSpec,
    ranks: Ranks,
    table: ExpertTable,
    slices: Sequence[ExpertSlice],
    rows: float,
    fewest: bool,
) -> tuple[Plan, Sequence[int]]:
    """A plan for the ranks in an order in which those of a server are neighbours, and that order.

    A plan of fewest moves asks neither for groups, which could take many, nor for another policy's opinion.
    """
    policy, count = spec.policy, len(table.layers[0].slots)
    if len(ranks.speeds) != count:
        raise NoPlan(f"the instance has {count} ranks and {len(ranks.speeds)} DPGroups; one of them is on its way")
    grouped = policy.expert_groups == "SameServer" and table.groups > 1 and not fewest
    order, servers = ranks.by_server() if grouped else (tuple(range(count)), 1)
    closed = frozenset(place for place, rank in enumerate(order) if rank in ranks.closed)
    base = -(-table.experts // max(count - len(closed), 1))
    if base > MAX_SLOTS:
        raise NoPlan(f"{base} experts would have to fit on a rank, which has {MAX_SLOTS} slots at most")
    width = max(min(base + spec.redundant_slots, MAX_SLOTS), *(len(each.slots[0]) for each in table.layers))
    slots = np.full((len(table.layers), count, width), EMPTY, np.int32)
    for row, each in enumerate(table.layers):
        slots[row, :, : len(each.slots[0])] = each.slots
    slots = slots[:, order]
    pinned = _base_slots(slots, base, closed) if policy.base_experts == "Pinned" else None
    chosen = np.array([each.chosen for each in slices]) if slices else np.ones((1, len(table.layers), table.experts))
    result = plan(
        LoadWindow.of(chosen, table.top_k),
        Cluster(
            count,
            width,
            excluded=closed,
            speeds=[ranks.speeds[rank] for rank in order],
            servers=servers,
            expert_groups=table.groups if grouped else 1,
        ),
        Placement.of(slots, table.experts),
        name="incremental" if fewest else policy.name,
        options=Options(BUDGETS[policy.budget], moves=policy.max_moves_per_layer, tokens=rows or Options.tokens),
        pinned=pinned,
        expert_bytes=table.expert_bytes,
    )
    return result, order


def _base_slots(slots: NDArray[np.int32], base: int, closed: frozenset[int]) -> NDArray[np.bool_]:
    """[layers, ranks, width]: one slot of each expert that has one among the first ``base`` of an open rank.

    Where ranks were emptied before, a second copy may be among them: it is redundant, and free to go.
    """
    open_ = ~np.isin(np.arange(slots.shape[1]), list(closed))
    candidates = (slots != EMPTY) & open_[:, None] & (np.arange(slots.shape[2]) < base)
    pinned = np.zeros(slots.shape, np.bool_)
    for layer, (held, mine) in enumerate(zip(slots, candidates, strict=True)):
        columns, ranks = np.nonzero(mine.T)
        _, first = np.unique(held[ranks, columns], return_index=True)
        pinned[layer, ranks[first], columns[first]] = True
    return pinned
