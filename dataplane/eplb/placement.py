"""Which expert sits in which slot, layer by layer.

Invariants that every planner keeps: an expert has at least one copy in a layer; no NPU holds two copies of one expert;
only open slots are filled; in a hierarchical cluster the experts of a group are on one server. ``Placement.check`` says
which one is broken.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eplb.cluster import Cluster
from eplb.errors import Unplannable

EMPTY = -1


@dataclass(frozen=True, eq=False)
class Placement:
    """``slots``: [layers, npus, width] int32, expert ids, EMPTY where nothing sits. ``experts``: experts of a layer."""

    slots: NDArray[np.int32]
    experts: int

    @classmethod
    def of(cls, slots: ArrayLike, experts: int) -> "Placement":
        """Checks shape and range of ids; Unplannable says what is wrong."""
        raw = np.asarray(slots)
        if raw.ndim != 3 or 0 in raw.shape or raw.dtype.kind not in "iu":
            raise Unplannable(f"a placement must be integers [layers, npus, slots]; it is {raw.dtype} {raw.shape}")
        if raw.min() < EMPTY or raw.max() >= experts:
            raise Unplannable(f"a placement names experts {raw.min()}..{raw.max()}; there are {experts}, from 0")
        return cls(raw.astype(np.int32), experts)

    @classmethod
    def plain(cls, layers: int, experts: int, cluster: Cluster) -> "Placement":
        """Experts in order, as evenly as the open slots allow, no copies: what a server does without any planner."""
        room = cluster.open_slots().sum(1)
        if room.sum() < experts:
            raise Unplannable(f"{experts} experts do not fit into {room.sum()} open slots")
        share = np.zeros_like(room)
        for _ in range(experts):  # the emptiest NPU with room, lowest number first
            share[np.where(share < room, share, experts + 1).argmin()] += 1
        slots = np.full((cluster.npus, cluster.width), EMPTY, np.int32)
        slots[np.arange(cluster.width) < share[:, None]] = np.arange(experts)
        return cls(np.repeat(slots[None], layers, 0), experts)

    @property
    def layers(self) -> int:
        """Number of layers."""
        return int(self.slots.shape[0])

    def copies(self) -> NDArray[np.int64]:
        """[layers, experts]: copies of each expert."""
        rows = np.arange(self.layers)[:, None, None] * (self.experts + 1)
        count = np.bincount((rows + self.slots + 1).ravel(), minlength=self.layers * (self.experts + 1))
        return count.reshape(self.layers, -1)[:, 1:]

    def held(self) -> NDArray[np.int64]:
        """[layers, npus, experts]: copies of each expert on each NPU; 0 or 1 unless there are duplicates."""
        layers, npus, _ = self.slots.shape
        rows = np.arange(layers * npus).reshape(layers, npus, 1) * (self.experts + 1)
        count = np.bincount((rows + self.slots + 1).ravel(), minlength=layers * npus * (self.experts + 1))
        return count.reshape(layers, npus, -1)[:, :, 1:]

    def missing(self) -> int:
        """Experts without any copy, over all layers."""
        return int((self.copies() == 0).sum())

    def duplicates(self) -> int:
        """(Layer, NPU, expert) triples with more than one copy."""
        ordered = np.sort(self.slots, axis=2)
        same = (ordered[:, :, 1:] == ordered[:, :, :-1]) & (ordered[:, :, 1:] != EMPTY)
        first = same & ~np.pad(same, ((0, 0), (0, 0), (1, 0)))[:, :, :-1]
        return int(first.sum())

    def moves_from(self, before: "Placement") -> NDArray[np.int64]:
        """[layers]: expert copies that an NPU holds now and did not before: weights that must travel."""
        layers, npus, _ = self.slots.shape
        rows = np.arange(layers * npus).reshape(layers, npus, 1) * self.experts
        now, then = ((rows + one.slots)[one.slots != EMPTY] for one in (self, before))
        new = np.setdiff1d(now, then)
        return np.bincount(new // (npus * self.experts), minlength=layers)

    def servers(self, cluster: Cluster) -> NDArray[np.bool_]:
        """[layers, groups, servers]: whether a server has experts of a group."""
        groups, size = cluster.expert_groups, max(self.experts // cluster.expert_groups, 1)
        server = np.repeat(np.arange(cluster.servers), cluster.npus // cluster.servers)[:, None]
        group = np.where(self.slots == EMPTY, groups, np.minimum(self.slots // size, groups))
        seen = np.zeros((self.layers, groups + 1, cluster.servers), np.bool_)
        seen[np.arange(self.layers)[:, None, None], group, server] = True
        return seen[:, :groups]

    def grouped(self, cluster: Cluster) -> NDArray[np.bool_]:
        """[layers]: whether every group of experts is on one server, and as many groups on each."""
        seen = self.servers(cluster)
        share = cluster.expert_groups // cluster.servers
        return np.asarray((seen.sum(2) == 1).all(1) & (seen.sum(1) == share).all(1))

    def check(self, cluster: Cluster) -> None:
        """Unplannable if an invariant is broken, with the first place where it is."""
        if self.slots.shape[1:] != (cluster.npus, cluster.width):
            raise Unplannable(f"a placement of {self.slots.shape[1:]} on {cluster.npus} NPUs of {cluster.width} slots")
        closed = (self.slots != EMPTY) & ~cluster.open_slots()
        if closed.any():
            layer, npu, slot = (int(index) for index in np.argwhere(closed)[0])
            raise Unplannable(f"layer {layer}: slot {slot} of NPU {npu} is filled, but not open")
        if self.missing():
            layer, expert = (int(index) for index in np.argwhere(self.copies() == 0)[0])
            raise Unplannable(f"layer {layer}: expert {expert} has no copy")
        if self.duplicates():
            raise Unplannable(f"{self.duplicates()} times an NPU holds an expert more than once")
        if cluster.hierarchical and not self.grouped(cluster).all():
            layer = int(self.grouped(cluster).argmin())
            raise Unplannable(f"layer {layer}: a group of experts is not on one server, as many groups on each")
