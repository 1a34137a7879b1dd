"""Which copy of an expert a token takes: replica number i mod n, i counting that expert's assignments.

arXiv 2508.02520 takes the token's position for i, which is even only if every token picks the expert; counting the
assignments of each expert makes its copies' counts differ by one at most, whatever the gate chose. Ranks start at
different replicas, or the first one would get the odd token of all of them. The map of a layer is one table, and a
batch is mapped by gathering from it; results do not change, since copies hold the same weights.

A slot can be switched off while its weights are replaced: the map simply lacks it, and refuses to lose a last copy.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eplb.errors import Unplannable
from eplb.placement import EMPTY

Ints = NDArray[np.int64]
FEW = 256  # assignments, up to which a loop is faster than sorting: 3 against 20 microseconds for a decode batch of 32


@dataclass(frozen=True, eq=False)
class ReplicaMap:
    """The map of one layer. ``table`` [experts, most copies]: physical slots (npu * width + slot), repeated from the
    left where an expert has fewer copies; ``copies`` [experts]."""

    table: Ints
    copies: Ints

    @classmethod
    def of(cls, slots: NDArray[np.integer[Any]], experts: int, disabled: frozenset[int] = frozenset()) -> "ReplicaMap":
        """The map of a layer's slots [npus, width] without the ``disabled`` physical ones; Unplannable if an expert
        would have no copy."""
        flat = slots.ravel().astype(np.int64)
        usable = flat != EMPTY
        usable[list(disabled)] = False
        physical = np.flatnonzero(usable)
        order = physical[np.argsort(flat[physical], kind="stable")]
        copies = np.bincount(flat[order], minlength=experts)
        if not copies.all():
            raise Unplannable(f"expert {int(copies.argmin())} would have no copy that is switched on")
        first = np.cumsum(copies) - copies
        column = np.arange(int(copies.max())) % copies[:, None]
        return cls(order[first[:, None] + column], copies)

    def physical(self, expert_ids: NDArray[np.integer[Any]], rank: int = 0) -> Ints:
        """Physical slot of each assignment: same shape as ``expert_ids``, which is in token order."""
        flat = expert_ids.ravel()
        turn = (_occurrence(flat) + rank) % self.copies[flat]
        return np.asarray(self.table[flat, turn].reshape(expert_ids.shape))

    def by_position(self, expert_ids: NDArray[np.integer[Any]]) -> Ints:
        """The same as published: i is the token's position, ``expert_ids`` [tokens, top_k]."""
        position = np.arange(len(expert_ids))[:, None]
        return np.asarray(self.table[expert_ids, position % self.copies[expert_ids]])


def _occurrence(ids: NDArray[np.integer[Any]]) -> Ints:
    """How many equal ids precede each one."""
    if len(ids) <= FEW:
        seen: dict[int, int] = {}
        before = []
        for one in ids.tolist():
            before.append(seen.get(one, 0))
            seen[one] = before[-1] + 1
        return np.array(before, np.int64)
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
    earlier = np.arange(len(ids)) - np.repeat(starts, np.diff(starts, append=len(ids)))
    occurrence = np.empty(len(ids), np.int64)
    occurrence[order] = earlier
    return occurrence
