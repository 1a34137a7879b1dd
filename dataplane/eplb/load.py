"""Expert load: token counts per time slice, layer and expert, and where they come from.

``LoadCounter`` sits behind the gate of a rank: one ``bincount`` a layer and iteration. What ranks counted is added up,
interval by interval, to a ``LoadWindow``, the input of every planner.

Invariants: counts are finite and never negative; a window holds at least one slice, layer and expert; the memory of a
window is known, and checked, before it is allocated.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eplb.errors import Unplannable

MAX_CELLS = 2**27  # slices * layers * experts of one window: 1 GiB of float64
MAX_COUNT = 2**62  # of one cell: sums are taken in float64, so nothing wraps around


@dataclass(frozen=True, eq=False)
class LoadWindow:
    """Tokens routed to each expert.

    ``counts``: [slices, layers, experts], float64, tokens. ``top_k``: experts a token visits, 0 if unknown; it is
    needed only to know the load of shared experts, which see every token.
    """

    counts: NDArray[np.float64]
    top_k: int = 0

    @classmethod
    def of(cls, counts: ArrayLike, top_k: int = 0) -> "LoadWindow":
        """Checks and converts counts [slices, layers, experts]; Unplannable names the first thing that is wrong."""
        raw = np.asarray(counts)
        if raw.ndim != 3 or 0 in raw.shape:
            raise Unplannable(f"load must be [slices, layers, experts], none of them 0; this one is {raw.shape}")
        if raw.size > MAX_CELLS:
            raise Unplannable(f"a window of {raw.size} counts is too large; {MAX_CELLS} is the limit: use fewer slices")
        if raw.dtype.kind not in "iuf":
            raise Unplannable(f"load must be numbers of tokens, not {raw.dtype}")
        if top_k < 0:
            raise Unplannable(f"top_k must not be negative; it is {top_k}")
        wrong = ~((raw >= 0) & (raw <= MAX_COUNT))  # NaN fails both
        if wrong.any():
            where = tuple(int(index) for index in np.argwhere(wrong)[0])
            raise Unplannable(f"load[slice, layer, expert] = load{list(where)} is {raw[where]}: not a number of tokens")
        return cls(raw.astype(np.float64), top_k)

    @property
    def slices(self) -> int:
        """Number of time slices."""
        return int(self.counts.shape[0])

    @property
    def layers(self) -> int:
        """Number of MoE layers."""
        return int(self.counts.shape[1])

    @property
    def experts(self) -> int:
        """Number of routed experts of a layer."""
        return int(self.counts.shape[2])

    @property
    def idle(self) -> NDArray[np.bool_]:
        """[layers]: layers without a single token."""
        return np.asarray(self.counts.sum((0, 2)) == 0)

    def shares(self) -> NDArray[np.float64]:
        """[slices, layers, experts]: each expert's part of its layer's tokens in that slice.

        A slice without tokens tells nothing and repeats the layer's mean; an idle layer is spread evenly.
        """
        total = self.counts.sum(2, keepdims=True)
        shares = np.divide(self.counts, total, out=np.zeros_like(self.counts), where=total > 0)
        seen = (total > 0).sum(0)
        mean = np.where(seen > 0, shares.sum(0) / np.maximum(seen, 1), 1.0 / self.experts)
        return np.where(total > 0, shares, mean)

    def since(self, first: int) -> "LoadWindow":
        """The slices from ``first`` on."""
        return LoadWindow(self.counts[first:], self.top_k)


class LoadCounter:
    """Counts of one rank since they were last taken: [layers, experts] int64."""

    def __init__(self, layers: int, experts: int) -> None:
        self._counts = np.zeros((layers, experts), np.int64)

    def add(self, layer: int, expert_ids: NDArray[np.integer[Any]]) -> None:
        """Counts the gate's choice, ids of any shape; called once a layer and iteration."""
        self._counts[layer] += np.bincount(expert_ids.ravel(), minlength=self._counts.shape[1])

    def take(self) -> NDArray[np.int64]:
        """The counts so far; the next interval starts at zero."""
        taken, self._counts = self._counts, np.zeros_like(self._counts)
        return taken
