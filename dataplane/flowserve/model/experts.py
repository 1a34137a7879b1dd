"""Routed experts: which a process holds, and running them on rows of (token, expert).

`run_experts` is the same on one process and on a rank of many, where the rows arrive by dispatch. Rows are sorted by
expert, and each expert's rows made as many as `linear.padded` says, so that a row's result is the same, bit for bit,
whichever rows meet in a batch or on a rank. There is a Python loop over experts that have rows, none over rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from flowserve.model.arrays import FloatArray, IntArray
from flowserve.model.functional import gated
from flowserve.model.int8 import Int8Linear, PackedExperts, pack_experts, packed_swiglu
from flowserve.model.linear import Linear, padded
from flowserve.model.weights import Weights, expert_name
from xccl import Steps

Slots = npt.NDArray[np.intp]
Group = tuple[int, slice]  # a slot, and its rows among the packed ones


class Experts(Protocol):
    """Runs the routed experts, wherever they are."""

    def __call__(self, layer: int, x: FloatArray, expert_ids: IntArray, weights: FloatArray) -> Steps[FloatArray]:
        """For tokens f32[T, H], sent to experts i32[T, K] with gates f32[T, K], their weighted sums f32[T, H].

        T may be 0: the rank takes part in the layer's collective all the same.
        """
        ...


Projection = Linear | Int8Linear


@dataclass(frozen=True)
class Expert:
    """One expert's projections."""

    gate_up: Projection
    down: Projection

    @property
    def tensors(self) -> tuple[npt.NDArray[Any], ...]:
        """All of it, scales too."""
        return *self.gate_up.tensors, *self.down.tensors

    def like(self, tensors: Sequence[npt.NDArray[Any]]) -> Expert:
        """An expert of the same shapes and form, with these `tensors`."""
        count = len(self.gate_up.tensors)
        return Expert(self.gate_up.like(tensors[:count]), self.down.like(tensors[count:]))


@dataclass(frozen=True)
class LayerExperts:
    """The experts of one layer that this process holds, in slots."""

    slot_of: Slots  # [experts], -1 for those held elsewhere
    gate_up: list[Projection]  # by slot
    down: list[Projection]
    inner: int  # F

    @classmethod
    def of(cls, held: Mapping[int, Expert], experts: int, inner: int) -> LayerExperts:
        """`held` by number, of a layer of `experts` whose intermediate size is `inner`."""
        slot_of = np.full(experts, -1, np.intp)
        slot_of[list(held)] = np.arange(len(held))
        return cls(slot_of, [each.gate_up for each in held.values()], [each.down for each in held.values()], inner)

    @cached_property
    def packed(self) -> PackedExperts | None:
        """All of them in the form that needs one call a layer, if they have it."""
        return pack_experts(self.gate_up, self.down)

    @property
    def held(self) -> dict[int, Expert]:
        """What `of` was given, in the order of the numbers."""
        return {
            expert: Expert(self.gate_up[self.slot_of[expert]], self.down[self.slot_of[expert]])
            for expert in np.flatnonzero(self.slot_of >= 0).tolist()
        }


class ExpertWeights:
    """The routed experts `held` (all by default) of `layers` (the main model's by default).

    Only their tensors are read.
    """

    def __init__(
        self, weights: Weights, held: Iterable[int] | None = None, layers: Iterable[int] | None = None
    ) -> None:
        """Raises CheckpointError if a tensor holds NaN or infinity, IndexError if the model has no such expert."""
        self._weights = weights
        numbers = tuple(range(weights.config.n_routed_experts) if held is None else held)
        self.layers = {
            layer: self.layer({expert: self.read(layer, expert) for expert in numbers})
            for layer in layers or weights.config.moe_layers
        }

    def read(self, layer: int, expert: int) -> Expert:
        """The expert as it is in the checkpoint. Raises CheckpointError if a tensor holds NaN or infinity."""
        module = expert_name(layer, expert)
        gate_up = self._weights.linear(f"{module}.gate_proj", f"{module}.up_proj")
        return Expert(gate_up, self._weights.linear(f"{module}.down_proj"))

    def hold(self, held: Mapping[int, Collection[int]]) -> None:
        """Holds these experts of these layers and no others, and reads those that are not here. As `read` raises."""
        for layer, numbers in held.items():
            have = self.layers[layer].held
            if have.keys() != set(numbers):
                self.layers[layer] = self.layer(
                    {one: have.get(one) or self.read(layer, one) for one in sorted(numbers)}
                )

    def layer(self, held: Mapping[int, Expert]) -> LayerExperts:
        """A layer in which these are held."""
        config = self._weights.config
        return LayerExperts.of(held, config.n_routed_experts, config.moe_intermediate_size)


def run_experts(weights: ExpertWeights, layer: int, x: FloatArray, experts: IntArray) -> FloatArray:
    """Every row of f32[T, H] through its experts, i32[T] or i32[T, K], in the order of these: f32[T or T K, H].

    Raises ValueError if an expert is not held here.
    """
    if not len(x):
        return np.empty_like(x)
    held = weights.layers[layer]
    slots = held.slot_of[experts.reshape(-1)]
    if (slots < 0).any():
        missing = sorted(set(experts.reshape(-1)[slots < 0].tolist()))
        raise ValueError(f"layer {layer}: experts {missing} are not held here")
    if held.packed is not None:
        return packed_swiglu(x, slots, held.packed)
    place, groups = _pack(slots)
    packed = np.zeros((groups[-1][1].stop, x.shape[1]), np.float32)
    packed[place] = x.repeat(len(slots) // len(x), axis=0)
    # One name for what comes and goes: of a long prompt's rows, each of these is megabytes.
    packed = _product(packed, held.gate_up, groups)
    packed = gated(packed[:, : 2 * held.inner])
    return _product(packed, held.down, groups)[place, : x.shape[1]]


def _pack(slots: Slots) -> tuple[Slots, list[Group]]:
    """Where each row goes when those of a slot lie side by side, `padded`; and the rows of each slot that has any."""
    counts = Counter(slots.tolist())
    groups: list[Group] = []
    shifts: list[int] = []  # how far a slot's rows move from where sorting puts them
    end = sorted_before = 0
    for slot, rows in sorted(counts.items()):
        shifts += [end - sorted_before] * rows
        groups.append((slot, slice(end, end + padded(rows))))
        end += padded(rows)
        sorted_before += rows
    place = np.empty(len(slots), np.intp)
    place[slots.argsort(kind="stable")] = np.arange(len(slots)) + np.array(shifts)
    return place, groups


def _product(x: FloatArray, experts: list[Projection], groups: list[Group]) -> FloatArray:
    """Each group's rows of x f32[N, in] through the projection of its slot: f32[N, at least out]."""
    one = experts[groups[0][0]]
    y = np.empty((len(x), one.width), np.float32)
    quantised = one.quantise(x) if isinstance(one, Int8Linear) else None
    for slot, rows in groups:
        expert = experts[slot]
        if isinstance(expert, Linear):
            expert.multiply(x[rows], y[rows])
        else:
            assert quantised is not None
            codes, scales = quantised
            expert.multiply(codes[rows], scales[rows], y[rows])
    return y


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
        rows = run_experts(self._weights, layer, x, expert_ids)
        return combine(rows.reshape(*expert_ids.shape, x.shape[1]), weights)
