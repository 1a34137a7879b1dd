"""Planning as arrays: a batch of independent layers, in units in which perfectly even load is 1 on every NPU.

A hierarchical cluster falls apart into one small problem a layer and server; so that is all a solver ever sees.
B batch, T slices, E experts, N NPUs, K slots.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from eplb.cluster import Cluster
from eplb.forecast import Forecast
from eplb.placement import EMPTY

Slots = NDArray[np.int64]
Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, eq=False)
class Problem:
    """``mean`` [B, E], ``covariance`` [B, E, E], ``slices`` [T, B, E]: load of experts, float32.

    ``start`` [B, N, K]: the placement in force, EMPTY where there is none. ``open``, ``pinned`` [B, N, K]: slots that
    may hold an expert, and slots of ``start`` that must keep theirs. ``rate`` [B, N]: 1 / speed, 0 where excluded.
    ``background`` [B, N]: load of shared experts. ``persistent``: whether deviations of slices last into the future.
    """

    mean: NDArray[np.float32]
    covariance: NDArray[np.float32]
    slices: NDArray[np.float32]
    start: Slots
    open: NDArray[np.bool_]
    pinned: NDArray[np.bool_]
    rate: NDArray[np.float32]
    background: NDArray[np.float32]
    persistent: bool

    @property
    def movable(self) -> NDArray[np.bool_]:
        """[B, N, K]: slots that a solver may fill."""
        return self.open & ~self.pinned

    def fixed_slots(self) -> Slots:
        """[B, N, K]: the pinned experts, EMPTY elsewhere."""
        return np.where(self.pinned, self.start, EMPTY)

    def risk(self, kappa: float) -> NDArray[np.float32]:
        """[B, E]: mean plus kappa standard deviations: the load an expert is to be prepared for."""
        return np.asarray(self.mean + kappa * np.sqrt(np.einsum("bee->be", self.covariance)))

    def at(self, rows: NDArray[np.int64]) -> "Problem":
        """Some layers of the batch only."""
        if np.array_equal(rows, np.arange(len(self.start))):
            return self
        batch_first = ("mean", "covariance", "start", "open", "pinned", "rate", "background")
        return replace(self, slices=self.slices[:, rows], **{name: getattr(self, name)[rows] for name in batch_first})


def problem(expected: Forecast, cluster: Cluster, top_k: int, start: Slots, pinned: NDArray[np.bool_]) -> Problem:
    """The whole cluster's problem, all layers; ``start`` and ``pinned`` are [layers, npus, width]."""
    layers = expected.mean.shape[0]
    speed, background = cluster.speed(), cluster.background(top_k)
    even = np.float32((1.0 + background.sum()) / speed.sum())
    rate = np.divide(1.0, speed, out=np.zeros_like(speed), where=speed > 0).astype(np.float32)

    def everywhere(array: NDArray[Scalar]) -> NDArray[Scalar]:
        return np.repeat(array[None], layers, 0)

    return Problem(
        mean=expected.mean / even,
        covariance=expected.covariance / even**2,
        slices=expected.slices / even,
        start=start,
        open=everywhere(cluster.open_slots()),
        pinned=pinned,
        rate=everywhere(rate),
        background=everywhere((background / even).astype(np.float32)),
        persistent=expected.half_life is not None,
    )
