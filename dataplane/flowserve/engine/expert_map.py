"""Where the routed experts of an instance are, and which slot each token takes: data, changed between iterations.

``ExpertMap`` is immutable. Slots have physical numbers, rank * width + slot, alike on all ranks; a layer's tokens are
mapped to them in one vectorised step (``eplb.ReplicaMap``), dispatched by them, and mapped back where they arrive.
Every rank has the same map in the same iteration, and in each of its layers every expert can be reached: a map that
would lose one cannot be made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from eplb import EMPTY, Cluster, Placement, ReplicaMap, Unplannable
from flowserve.model import IntArray
from flowserve.wire_experts import LayerSlots

_DIGEST_BITS = 60


def plain_slots(experts: int, ranks: int) -> IntArray:
    """Experts in contiguous blocks whose sizes differ by one at most: i32[ranks, width], EMPTY behind the shorter."""
    owner = np.arange(experts) * ranks // experts
    slots = np.full((ranks, -(-experts // ranks)), EMPTY, np.int32)
    for rank in range(ranks):
        held = np.flatnonzero(owner == rank)
        slots[rank, : len(held)] = held
    return slots


@dataclass(frozen=True, eq=False)
class LayerMap:
    """One layer. ``slots``: i32[ranks, width]; ``owner``: i32[ranks * width], the rank of each physical slot."""

    slots: IntArray
    replicas: ReplicaMap
    owner: IntArray

    @classmethod
    def of(cls, slots: IntArray, experts: int, disabled: frozenset[int] = frozenset()) -> LayerMap:
        """Raises Unplannable if an expert has no slot that is on, or a rank has one twice."""
        ranks, width = slots.shape
        Placement.of(slots[None], experts).check(Cluster(ranks, width))
        owner = np.repeat(np.arange(ranks, dtype=np.int32), width)
        return cls(slots, ReplicaMap.of(slots, experts, disabled), owner)

    @cached_property
    def _single(self) -> IntArray | None:
        """The slot of each expert, where all have one only."""
        return self.replicas.table[:, 0].astype(np.int32) if int(self.replicas.copies.max()) == 1 else None

    @cached_property
    def _expert_of(self) -> IntArray:
        return self.slots.reshape(-1)

    def physical(self, expert_ids: IntArray, rank: int) -> npt.NDArray[np.int32]:
        """The slots that the tokens of ``rank`` take: i32 of the shape of ``expert_ids``."""
        if (single := self._single) is not None:
            return single[expert_ids]
        return self.replicas.physical(expert_ids, rank).astype(np.int32)

    def experts(self, physical: IntArray) -> IntArray:
        """The experts in these slots."""
        return self._expert_of[physical]


@dataclass(frozen=True, eq=False)
class ExpertMap:
    """All layers, by number. ``version`` is that of the placement, of which slots may be switched off."""

    version: int
    experts: int
    layers: Mapping[int, LayerMap]

    @classmethod
    def plain(cls, layers: Iterable[int], experts: int, ranks: int) -> ExpertMap:
        """The placement that needs no word from anybody: version 0."""
        one = LayerMap.of(plain_slots(experts, ranks), experts)
        return cls(0, experts, dict.fromkeys(layers, one))

    def changed(self, version: int, layers: Iterable[LayerSlots]) -> ExpertMap:
        """This map with other slots in some layers. Raises Unplannable, naming the layer."""
        new, named = dict(self.layers), set[int]()
        for each in layers:
            if each.layer in named:
                raise Unplannable(f"layer {each.layer} is named twice")
            named.add(each.layer)
            if each.layer not in new:
                raise Unplannable(f"layer {each.layer} has no routed experts; layers {sorted(new)} have")
            if len({len(rank) for rank in each.slots}) != 1:
                raise Unplannable(f"layer {each.layer}: all ranks must have as many slots")
            if len(each.slots) != self.ranks:
                raise Unplannable(f"layer {each.layer}: slots of {len(each.slots)} ranks, there are {self.ranks}")
            try:
                new[each.layer] = LayerMap.of(np.array(each.slots, np.int32), self.experts)
            except Unplannable as error:
                raise Unplannable(f"layer {each.layer}: {error}") from error
        return ExpertMap(version, self.experts, new)

    def without(self, disabled: Mapping[int, frozenset[int]]) -> ExpertMap:
        """This map with physical slots of some layers switched off. Raises Unplannable if an expert is lost."""
        off = {
            layer: LayerMap.of(self.layers[layer].slots, self.experts, slots)
            for layer, slots in disabled.items()
            if slots
        }
        return ExpertMap(self.version, self.experts, {**self.layers, **off})

    @property
    def ranks(self) -> int:
        """How many ranks it is for; 0 for a model without routed experts."""
        return next((len(each.slots) for each in self.layers.values()), 0)

    def held(self, rank: int) -> dict[int, frozenset[int]]:
        """The experts of each layer that ``rank`` has in its slots, switched on or off."""
        return {
            layer: frozenset(each.slots[rank][each.slots[rank] != EMPTY].tolist())
            for layer, each in self.layers.items()
        }

    @property
    def digest(self) -> int:
        """60 bits that are equal for equal placements of the same version: ranks compare them when they meet anew."""
        hasher = hashlib.sha256(repr((self.version, self.experts, sorted(self.layers))).encode())
        for layer in sorted(self.layers):
            slots = self.layers[layer].slots
            hasher.update(repr(slots.shape).encode() + slots.tobytes())
        return int.from_bytes(hasher.digest()[:8], "big") >> (64 - _DIGEST_BITS)

    def table(self) -> tuple[LayerSlots, ...]:
        """All layers, as messages have them."""
        return tuple(
            LayerSlots(layer=layer, slots=tuple(map(tuple, each.slots.tolist())))
            for layer, each in sorted(self.layers.items())
        )
