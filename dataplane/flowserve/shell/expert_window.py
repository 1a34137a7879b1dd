"""From what ranks have counted since they started to what an instance did in each interval. Pure; without NumPy.

A slice is made of two rounds of answers by the same processes. Where a rank did not answer, was restarted, or ranks
disagree about the epoch, the interval tells nothing and is left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from flowserve.wire_experts import ExpertLoad, ExpertSlice

Round = Mapping[int, ExpertLoad]  # by rank


class ExpertWindow:
    """The last ``slices`` intervals."""

    def __init__(self, slices: int) -> None:
        self.slices: deque[ExpertSlice] = deque(maxlen=slices)
        self.layers: tuple[int, ...] = ()
        self._before: Round = {}
        self._began = 0.0
        self._sequence = 0

    def resize(self, slices: int) -> None:
        """Remembers so many from now on."""
        self.slices = deque(self.slices, maxlen=slices)

    def take(self, loads: Round, now: float) -> None:
        """A round of answers, at least one, at ``now`` seconds."""
        before, began = self._before, self._began
        self._before, self._began = loads, now
        first = next(iter(loads.values()))
        if self.layers != first.layers:
            self.layers = first.layers
            self.slices.clear()
        if not _comparable(before, loads):
            return
        versions = {load.version for each in (before, loads) for load in each.values()}
        self._sequence += 1
        self.slices.append(
            ExpertSlice(
                sequence=self._sequence,
                seconds=max(now - began, 1e-9),
                epoch=first.epoch,
                version=versions.pop() if len(versions) == 1 else None,
                chosen=_chosen(before, loads),
                served=tuple(
                    tuple(new - old for new, old in zip(loads[rank].served, before[rank].served, strict=True))
                    for rank in sorted(loads)
                ),
            )
        )


def _comparable(before: Round, now: Round) -> bool:
    """Whether the same processes answered both times, in one epoch and about the same layers."""
    kinds = {(load.epoch, load.layers) for each in (before, now) for load in each.values()}
    same = before.keys() == now.keys() and all(before[rank].incarnation == now[rank].incarnation for rank in now)
    return same and len(kinds) == 1


def _chosen(before: Round, now: Round) -> tuple[tuple[int, ...], ...]:
    layers = []
    for layer in range(len(next(iter(now.values())).layers)):
        new = map(sum, zip(*(load.chosen[layer] for load in now.values()), strict=True))
        old = map(sum, zip(*(load.chosen[layer] for load in before.values()), strict=True))
        layers.append(tuple(one - other for one, other in zip(new, old, strict=True)))
    return tuple(layers)
