"""What must travel, and what may be switched off meanwhile, when a layer goes from one placement to the next.

An NPU that lacks an expert of the new placement gets it from one that has it now; its readers are dealt out over the
copies, so that no copy serves all. One that is to hold nothing may be about to fail: it is read from only where it has
the last copy. Slots whose expert leaves their NPU are switched off while weights are loaded, as
long as another copy stays: one that is the last, which only happens where base experts change places, goes on serving
until the new placement is switched on.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eplb.placement import EMPTY

LayerSlots = NDArray[np.integer[Any]]  # [npus, width]


@dataclass(frozen=True, order=True)
class Transfer:
    """The weights of an expert of a layer, from NPU ``source`` to NPU ``target``."""

    layer: int
    expert: int
    source: int
    target: int


def transfers(layer: int, before: LayerSlots, after: LayerSlots) -> Iterator[Transfer]:
    """Everything that ``after`` has where ``before`` has not, by target and slot. Every expert has a copy in both."""
    served: dict[int, int] = {}
    leaves = (after == EMPTY).all(1)
    for target, (old, new) in enumerate(zip(before, after, strict=True)):
        for expert in new[(new != EMPTY) & ~np.isin(new, old)].tolist():
            holders = np.flatnonzero((before == expert).any(1))
            sources = holders[~leaves[holders]] if not leaves[holders].all() else holders
            turn = served[expert] = served.get(expert, -1) + 1
            yield Transfer(layer, expert, int(sources[turn % len(sources)]), target)


def switched_off(before: LayerSlots, after: LayerSlots, experts: int) -> frozenset[int]:
    """Physical slots (npu * width + slot) of ``before`` that serve no more while weights are loaded."""
    copies = np.bincount(before[before != EMPTY], minlength=experts)
    off: list[int] = []
    for npu, (old, new) in enumerate(zip(before, after, strict=True)):
        for slot in np.flatnonzero((old != EMPTY) & ~np.isin(old, new)).tolist():
            if copies[old[slot]] > 1:
                copies[old[slot]] -= 1
                off.append(npu * before.shape[1] + slot)
    return frozenset(off)
