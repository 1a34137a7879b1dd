"""A placement under search: all layers of a batch at once, flat, so that one NumPy call moves every layer.

NPUs of all layers form one axis of length M = B * N, slots come first ([K, M]: long inner loops), and experts are
numbered through, layer by layer, with one more at the end of each layer that stands for an empty slot and has no load.

The search lowers a potential, the sum over NPUs of level ** (2 ** power), with the most loaded NPU's level as unit: a
soft maximum, whose changes concern only the NPUs touched, so that swaps between different pairs of NPUs do not
disturb each other. Two kinds of level exist: ``Moments`` and ``Slices``. Both answer the questions of ``State``.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eplb.placement import EMPTY
from eplb.problem import Problem, Scalar, Slots

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

CEILING = np.float32(1.5)  # of levels: far above anything worth taking, and its highest power is still a float32


@dataclass
class MoveLimit:
    """At most ``moves`` copies a layer on NPUs that did not hold them before; each costs ``price`` of potential."""

    moves: int
    price: float


class State(ABC):
    """``plan`` [K, M]: expert of each slot, E where empty. ``copies`` [B * (E + 1)]: float32."""

    def __init__(self, problem: Problem, slots: Slots, limit: MoveLimit | None = None) -> None:
        self.batch, self.npus, self.width = slots.shape
        self.experts = problem.mean.shape[1]
        self.stride = self.experts + 1
        flat = self.batch * self.npus
        self.plan = self._flat(np.where(slots == EMPTY, self.experts, slots))
        self.fixed = self._flat(~problem.movable)
        self.rate = problem.rate.reshape(flat)
        self.background = problem.background.reshape(flat)
        self.first_expert = np.repeat(np.arange(self.batch) * self.stride, self.npus)
        self.first_npu = (np.arange(self.batch) * self.npus)[:, None]
        self.most = problem.movable.any(2).sum(1)  # NPUs that can take a copy
        self.copies = np.bincount((self.first_expert + self.plan).ravel(), minlength=self.batch * self.stride)
        self.copies = self.copies.astype(np.float32)
        self.limit = limit
        self.home = self._home(problem.start) if limit else None
        self._recount()

    def _flat(self, array: NDArray[Scalar]) -> NDArray[Scalar]:
        return np.ascontiguousarray(array.reshape(-1, self.width).T)

    def _home(self, start: Slots) -> NDArray[np.bool_]:
        home = np.zeros((self.batch * self.npus, self.stride), np.bool_)
        np.put_along_axis(home, np.where(start == EMPTY, self.experts, start).reshape(-1, self.width), True, 1)
        home[:, self.experts] = True  # emptying a slot moves nothing
        return home.ravel()

    def slots(self) -> Slots:
        """[B, N, K]: the placement now."""
        slots = self.plan.T.reshape(self.batch, self.npus, self.width)
        return np.where(slots == self.experts, EMPTY, slots)

    def strange(self, npus: Ints, experts: Ints) -> NDArray[np.bool_]:
        """Whether an NPU would have to fetch an expert; arrays of the same shape."""
        assert self.home is not None
        return np.asarray(~self.home.take(npus * self.stride + experts))

    def moves_left(self) -> Ints:
        """[B]: moves that the limit still allows."""
        assert self.limit is not None
        moves = self.strange(np.arange(self.batch * self.npus), self.plan).sum(0)
        return np.asarray(self.limit.moves - moves.reshape(self.batch, self.npus).sum(1))

    def recount(self, layers: Ints, fewer: Ints, more: Ints) -> None:
        """In each of ``layers`` one expert lost a copy to another one."""
        self.copies[layers * self.stride + fewer] -= 1
        self.copies[layers * self.stride + more] += 1
        self._recount()
        self.refresh_experts(layers, fewer, more)

    def _recount(self) -> None:
        # An empty slot is never the last copy of anything.
        self.copies[self.experts :: self.stride] = 2
        self.part = 1 / np.maximum(self.copies, 1)

    def layer(self, values: NDArray[Scalar]) -> NDArray[Scalar]:
        """[M] as [B, N]."""
        return values.reshape(self.batch, self.npus)

    @abstractmethod
    def heat(self) -> Floats:
        """[B, N]: how much an NPU contributes to the barrier; only the order within a layer counts."""

    @abstractmethod
    def potential(self, power: int) -> Floats:
        """[M]: the potential of each NPU, in units fixed by the last call of ``scale``."""

    @abstractmethod
    def scale(self) -> None:
        """Makes the most loaded NPU of each layer the unit."""

    @abstractmethod
    def swapped(self, left: Ints, right: Ints, power: int) -> Floats:
        """[K, K, pairs]: potential of both NPUs if slot i of ``left`` and slot j of ``right`` were exchanged."""

    @abstractmethod
    def regrown(self, power: int) -> tuple[Floats, Floats, Floats]:
        """[K, M] each: an NPU's potential if the expert of its slot had one copy fewer elsewhere, one more elsewhere,
        and if the slot were empty."""

    @abstractmethod
    def refilled(self, npus: Ints, slots: Ints, experts: Ints, power: int) -> Floats:
        """[P, Q, B]: potential of NPU ``npus[p, b]`` if its slot held ``experts[q, b]`` with one copy more."""

    @abstractmethod
    def refresh(self, npus: Ints) -> None:
        """The slots of these NPUs changed, copies did not."""

    @abstractmethod
    def refresh_experts(self, layers: Ints, fewer: Ints, more: Ints) -> None:
        """The copies of two experts changed in each of these layers, and so did slots."""
