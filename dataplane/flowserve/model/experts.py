"""Routed experts: which a process holds, and running them on rows of (token, expert).

`run_experts` is the same on one process and on a rank of many, where the rows arrive by dispatch. Rows are sorted by
expert and packed into tiles of TILE rows of one expert, the last tile of each padded with zeros. BLAS so gets the same
shapes whichever rows meet in a batch or on a rank, and a row's result is the same, bit for bit, on one process and on
many. There is a Python loop over experts that have rows, none over rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from flowserve.model.arrays import FloatArray, IntArray
from flowserve.model.functional import gated
from flowserve.model.weights import Weights, expert_name
from xccl import Steps

TILE = 8


class Experts(Protocol):
    """Runs the routed experts, wherever they are."""

    def __call__(self, layer: int, x: FloatArray, expert_ids: IntArray, weights: FloatArray) -> Steps[FloatArray]:
        """For tokens f32[T, H], sent to experts i32[T, K] with gates f32[T, K], their weighted sums f32[T, H].

        T may be 0: the rank takes part in the layer's collective all the same.
        """
        ...


@dataclass(frozen=True)
class LayerExperts:
    """The experts of one layer that this process holds, in slots."""

    slot_of: npt.NDArray[np.intp]  # [experts], -1 for those held elsewhere
    gate_up: FloatArray  # [slots, H, 2 F]
    down: FloatArray  # [slots, F, H]


class ExpertWeights:
    """The routed experts `held` (all by default) of `layers` (the main model's by default).

    Only their tensors are read.
    """

    def __init__(
        self, weights: Weights, held: Iterable[int] | None = None, layers: Iterable[int] | None = None
    ) -> None:
        """Raises CheckpointError if a tensor holds NaN or infinity, IndexError if the model has no such expert."""
        everything = range(weights.config.n_routed_experts)
        self.held = tuple(everything if held is None else held)
        self.layers = {layer: _load(weights, layer, self.held) for layer in layers or weights.config.moe_layers}


def _load(weights: Weights, layer: int, held: tuple[int, ...]) -> LayerExperts:
    config = weights.config
    hidden, inner = config.hidden_size, config.moe_intermediate_size
    slot_of = np.full(config.n_routed_experts, -1, np.intp)
    gate_up = np.empty((len(held), hidden, 2 * inner), np.float32)
    down = np.empty((len(held), inner, hidden), np.float32)
    for slot, expert in enumerate(held):
        slot_of[expert] = slot
        module = expert_name(layer, expert)
        gate_up[slot] = weights.matrix(f"{module}.gate_proj", f"{module}.up_proj")
        down[slot] = weights.matrix(f"{module}.down_proj")
    return LayerExperts(slot_of, gate_up, down)


def run_experts(weights: ExpertWeights, layer: int, x: FloatArray, experts: IntArray) -> FloatArray:
    """Expert `experts[i]` on row i, for rows f32[N, H] and experts i32[N], in the order of the rows: f32[N, H].

    Raises ValueError if an expert is not held here.
    """
    if not len(x):
        return np.empty_like(x)
    held = weights.layers[layer]
    slots = held.slot_of[experts]
    if slots.min() < 0:
        missing = sorted(set(experts[slots < 0].tolist()))
        raise ValueError(f"layer {layer}: experts {missing} are not held here")
    rows_in = np.bincount(slots, minlength=len(held.gate_up))
    tiles_in = -(-rows_in // TILE)
    tile_end = tiles_in.cumsum()
    # A row's place among the packed ones: the start of its expert's tiles, plus its rank among that expert's rows.
    shift = (tile_end - tiles_in) * TILE - (rows_in.cumsum() - rows_in)
    order = slots.argsort(kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order)) + shift[slots[order]]

    packed = np.zeros((int(tile_end[-1]) * TILE, x.shape[1]), np.float32)
    packed[place] = x
    tiles = packed.reshape(-1, TILE, x.shape[1])
    gate_up = np.empty((*tiles.shape[:2], held.gate_up.shape[2]), np.float32)
    groups = [(slot, tile_end[slot] - tiles_in[slot], tile_end[slot]) for slot in rows_in.nonzero()[0]]
    for slot, first, end in groups:
        np.matmul(tiles[first:end], held.gate_up[slot], out=gate_up[first:end])
    inner = gated(gate_up)
    for slot, first, end in groups:
        np.matmul(inner[first:end], held.down[slot], out=tiles[first:end])
    return packed[place]


def combine(rows: FloatArray, weights: FloatArray) -> FloatArray:
    """The gated sum of each token's experts, for rows f32[T, K, H] and gates f32[T, K]: f32[T, H].

    In float32 and in the order of k, as XCCL's combine adds them.
    """
    total: FloatArray = (rows * weights[:, :, None]).sum(axis=1)
    return total


class LocalExperts:
    """`Experts` that are all in this process: nothing to wait for."""

    def __init__(self, weights: ExpertWeights) -> None:
        self._weights = weights

    def __call__(self, layer: int, x: FloatArray, expert_ids: IntArray, weights: FloatArray) -> Steps[FloatArray]:
        yield from ()
        copies = x.repeat(expert_ids.shape[1], axis=0)
        rows = run_experts(self._weights, layer, copies, expert_ids.reshape(-1))
        return combine(rows.reshape(*expert_ids.shape, x.shape[1]), weights)
