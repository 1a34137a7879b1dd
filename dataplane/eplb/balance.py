"""What a placement makes of a load: the barrier of a layer waits for its most loaded NPU, slice by slice.

``imbalance(slice, layer) = max over NPUs of load / speed, over the same for perfectly even load``; 1 is perfect. Tokens
of an expert are split evenly over its copies. The balance of a layer is the mean over its slices; a slice without
tokens waits for nobody and counts as 1.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eplb.cluster import Cluster
from eplb.errors import Unplannable
from eplb.load import LoadWindow
from eplb.placement import Placement


@dataclass(frozen=True, eq=False)
class Balance:
    """``slices``: [slices, layers] imbalance of each slice and layer."""

    slices: NDArray[np.float64]

    @property
    def layers(self) -> NDArray[np.float64]:
        """[layers]: mean over slices."""
        return np.asarray(self.slices.mean(0))

    @property
    def mean(self) -> float:
        """Mean over layers."""
        return float(self.layers.mean())

    @property
    def worst(self) -> float:
        """The worst layer's."""
        return float(self.layers.max())


def npu_shares(window: LoadWindow, placement: Placement, cluster: Cluster) -> NDArray[np.float64]:
    """[slices, layers, npus]: each NPU's load as a part of the layer's routed tokens, shared experts included."""
    _fits(window, placement, cluster)
    slices, layers, _ = window.counts.shape
    per_copy = window.shares() / np.maximum(placement.copies(), 1)
    padded = np.concatenate([per_copy, np.zeros((slices, layers, 1))], axis=2)  # EMPTY = -1 finds the last column
    load = np.repeat(cluster.background(window.top_k)[None], slices * layers, 0).reshape(slices, layers, -1)
    for slot in range(placement.slots.shape[2]):
        load += np.take_along_axis(padded, placement.slots[None, :, :, slot], 2)
    return load


def balance(window: LoadWindow, placement: Placement, cluster: Cluster) -> Balance:
    """The imbalance of each slice and layer; experts without a copy are nobody's load."""
    speed = cluster.speed()
    load = npu_shares(window, placement, cluster)
    even = (1.0 + cluster.background(window.top_k).sum()) / speed.sum()
    slowest = np.divide(load, speed, out=np.zeros_like(load), where=speed > 0).max(2) / even
    return Balance(np.where(window.counts.sum(2) > 0, slowest, 1.0))


def _fits(window: LoadWindow, placement: Placement, cluster: Cluster) -> None:
    if window.experts != placement.experts or window.layers != placement.layers:
        raise Unplannable(
            f"a load of {window.layers} layers x {window.experts} experts does not fit a placement of "
            f"{placement.layers} x {placement.experts}"
        )
    if placement.slots.shape[1] != cluster.npus:
        raise Unplannable(f"a placement on {placement.slots.shape[1]} NPUs does not fit a cluster of {cluster.npus}")
