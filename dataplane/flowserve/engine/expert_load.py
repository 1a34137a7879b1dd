"""What an engine counts behind the gate of every MoE layer: which experts its tokens chose, and what came here to run.

Counts only grow. Whoever asks takes differences, so that an answer that was lost, or asked for twice, loses nothing.
A forward pass that was undone and run again is counted again: rare, and no reason to pay for undoing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eplb import LoadCounter
from flowserve.model import IntArray


class ExpertCounts:
    """Since the process started. ``layers``: numbers of the layers that are counted."""

    def __init__(self, layers: Sequence[int], experts: int) -> None:
        self.layers = tuple(layers)
        self._row = {layer: row for row, layer in enumerate(self.layers)}
        self._fresh = LoadCounter(len(self.layers), experts)
        self._chosen = np.zeros((len(self.layers), experts), np.int64)
        self._served = [0] * len(self.layers)

    def add(self, layer: int, chosen: IntArray, served: int) -> None:
        """Counts one pass through a layer: the gate's choices of own tokens, and the pairs that arrived here."""
        row = self._row[layer]
        self._served[row] += served
        if chosen.size:
            self._fresh.add(row, chosen)

    def chosen(self) -> list[list[int]]:
        """[layers][experts]: choices of own tokens."""
        self._chosen += self._fresh.take()
        counts: list[list[int]] = self._chosen.tolist()
        return counts

    def served(self) -> list[int]:
        """[layers]: (token, expert) pairs that were run here."""
        return list(self._served)
