"""Levels slice by slice: exactly what the barrier of the window waited for.

Each slice has its own unit, the load of its most loaded NPU, so that a calm slice counts as much as a wild one.
"""

import numpy as np

from eplb.problem import Problem, Slots
from eplb.state import CEILING, Floats, Ints, MoveLimit, State

HEAT_POWER = 4


class Slices(State):
    """``load`` [T, M]: load of each NPU, times its rate."""

    def __init__(self, problem: Problem, slots: Slots, limit: MoveLimit | None = None) -> None:
        super().__init__(problem, slots, limit)
        count = len(problem.slices)
        counts = np.zeros((count, self.batch, self.stride), np.float32)
        counts[:, :, : self.experts] = problem.slices
        self.counts = counts.reshape(count, -1)
        self.share = self.counts * self.part
        self.load = np.empty((count, self.batch * self.npus), np.float32)
        self.refresh(np.arange(self.batch * self.npus))
        self.scale()

    def refresh(self, npus: Ints) -> None:
        load = self.share.take(self.first_expert.take(npus) + self.plan.take(npus, 1), 1).sum(1)
        load += self.background.take(npus)
        load *= self.rate.take(npus)
        self.load[:, npus] = load

    def refresh_experts(self, layers: Ints, fewer: Ints, more: Ints) -> None:
        experts = np.concatenate([layers * self.stride + fewer, layers * self.stride + more])
        self.share[:, experts] = self.counts[:, experts] * self.part[experts]
        self.refresh((layers[:, None] * self.npus + np.arange(self.npus)).ravel())

    def heat(self) -> Floats:
        heat = np.log(self._soft(self.load * self.unit, HEAT_POWER) + np.float32(1e-30))
        return self.layer(heat)

    def barrier(self) -> Floats:
        """[B]: load of the most loaded NPU, mean over slices; what a plan is judged by."""
        return np.asarray(self.load.reshape(-1, self.batch, self.npus).max(2).mean(0))

    def scale(self) -> None:
        top = self.load.reshape(-1, self.batch, self.npus).max(2)
        self.unit = np.repeat(1 / np.maximum(top, np.float32(1e-30)), self.npus, axis=1)

    def _soft(self, level: Floats, power: int) -> Floats:
        """[T, ...] -> [...]: sum over slices; overwrites ``level``."""
        np.minimum(level, CEILING, out=level)
        for _ in range(power - 1):
            np.multiply(level, level, out=level)
        return np.asarray(np.einsum("t...,t...->...", level, level) / np.float32(len(level)))

    def potential(self, power: int) -> Floats:
        return self._soft(self.load * self.unit, power)

    def swapped(self, left: Ints, right: Ints, power: int) -> Floats:
        unit = self.unit.take(left, 1)  # the same for both: they belong to one layer
        rate_l, rate_r = self.rate.take(left), self.rate.take(right)
        gone = self.share.take(self.first_expert.take(left) + self.plan.take(left, 1), 1)[:, :, None]
        gone = gone - self.share.take(self.first_expert.take(right) + self.plan.take(right, 1), 1)[:, None]
        gone *= unit[:, None, None]
        load_l, load_r = self.load.take(left, 1) * unit, self.load.take(right, 1) * unit
        potential = self._soft(load_l[:, None, None] - gone * rate_l, power)
        gone *= rate_r
        gone += load_r[:, None, None]
        potential += self._soft(gone, power)
        return potential

    def regrown(self, power: int) -> tuple[Floats, Floats, Floats]:
        experts = self.first_expert + self.plan
        copies = self.copies.take(experts)
        share = self.share.take(experts, 1) * (self.rate * self.unit)[:, None]
        load = (self.load * self.unit)[:, None]
        return (
            self._soft(load + share / np.maximum(copies - 1, np.float32(0.5)), power),
            self._soft(load - share / (copies + 1), power),
            self._soft(load - share, power),
        )

    def refilled(self, npus: Ints, slots: Ints, experts: Ints, power: int) -> Floats:
        new = np.arange(self.batch) * self.stride + experts
        part = 1 / (self.copies.take(new) + 1)
        old = self.first_expert.take(npus) + self.plan[slots, npus]
        scale = self.rate[npus] * self.unit[:, npus]
        kept = self.load[:, npus] * self.unit[:, npus] - self.share[:, old] * scale
        level = kept[:, :, None] + (self.counts[:, new] * part)[:, None] * scale[:, :, None]
        return self._soft(level, power)
