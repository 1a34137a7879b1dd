"""Levels from mean and covariance: mean load of an NPU plus ``kappa`` standard deviations.

The robust view: it fits no particular slice, only how much each expert varies and with whom. And the fast one: a swap
is judged from a handful of numbers, whatever the number of slices. With s a slot's load and V the NPU's:
    var(V - a + b) = var V + var a + var b - 2 cov(V, a) + 2 cov(V, b) - 2 cov(a, b).
"""

import numpy as np

from eplb.problem import Problem, Slots
from eplb.state import CEILING, Floats, Ints, MoveLimit, State


class Moments(State):
    """``kappa``: standard deviations to be prepared for."""

    def __init__(self, problem: Problem, slots: Slots, kappa: float, limit: MoveLimit | None = None) -> None:
        super().__init__(problem, slots, limit)
        self.kappa = np.float32(kappa)
        batch, experts = problem.mean.shape
        mean = np.zeros((batch, self.stride), np.float32)
        mean[:, :experts] = problem.mean
        covariance = np.zeros((batch, self.stride, self.stride), np.float32)
        covariance[:, :experts, :experts] = problem.covariance
        self.mean, self.covariance = mean.ravel(), covariance.ravel()
        shape = self.plan.shape
        self.share, self.with_npu, self.own = (np.empty(shape, np.float32) for _ in range(3))
        self.level, self.variance = np.empty(shape[1], np.float32), np.empty(shape[1], np.float32)
        self.refresh(np.arange(shape[1]))
        self.scale()

    def refresh(self, npus: Ints) -> None:
        plan, first = self.plan.take(npus, 1), self.first_expert.take(npus)
        experts = first + plan
        part = self.part.take(experts)
        share = self.mean.take(experts) * part
        with_npu = np.empty_like(part)
        rows = experts * self.stride
        for slot in range(self.width):
            covariance = self.covariance.take(rows[slot] + plan)
            covariance *= part
            with_npu[slot] = covariance.sum(0)
            self.own[slot, npus] = covariance[slot] * part[slot]
        with_npu *= part
        self.share[:, npus], self.with_npu[:, npus] = share, with_npu
        self.level[npus] = share.sum(0) + self.background.take(npus)
        self.variance[npus] = with_npu.sum(0)

    def refresh_experts(self, layers: Ints, fewer: Ints, more: Ints) -> None:
        of_layer = (layers[:, None] * self.npus + np.arange(self.npus)).ravel()
        plan = self.plan.take(of_layer, 1)
        repeated = np.repeat(np.stack([fewer, more]), self.npus, 1)
        holders = ((plan == repeated[0]) | (plan == repeated[1])).any(0)
        self.refresh(of_layer[holders])

    def snapshot(self) -> tuple[Ints, Floats]:
        """What ``restore`` needs."""
        return np.array(self.plan), np.array(self.copies, np.float32)

    def restore(self, snapshot: tuple[Ints, Floats], layers: Ints) -> None:
        """Takes these layers back to what they were."""
        if not len(layers):
            return
        npus = (layers[:, None] * self.npus + np.arange(self.npus)).ravel()
        experts = (layers[:, None] * self.stride + np.arange(self.stride)).ravel()
        plan, copies = snapshot
        self.plan[:, npus] = plan[:, npus]
        self.copies[experts] = copies[experts]
        self._recount()
        self.refresh(npus)

    def levels(self) -> Floats:
        """[B, N]: mean plus kappa standard deviations, in units of perfectly even load."""
        spread = np.sqrt(np.maximum(self.variance, 0))
        return self.layer(((self.level + self.kappa * spread) * self.rate).astype(np.float32))

    def heat(self) -> Floats:
        return self.levels()

    def scale(self) -> None:
        top = np.maximum(self.levels().max(1), np.float32(1e-30))
        self.unit = self.rate / np.repeat(top, self.npus)

    def _soft(self, mean: Floats, variance: Floats, unit: Floats, power: int) -> Floats:
        level = np.maximum(variance, 0)
        np.sqrt(level, out=level)
        level *= self.kappa
        level += mean
        level *= unit
        np.minimum(level, CEILING, out=level)
        for _ in range(power):
            np.multiply(level, level, out=level)
        return level

    def potential(self, power: int) -> Floats:
        return self._soft(self.level, self.variance, self.unit, power)

    def swapped(self, left: Ints, right: Ints, power: int) -> Floats:
        plan_l, plan_r = self.plan.take(left, 1), self.plan.take(right, 1)
        experts = self.first_expert.take(left) + plan_l
        between = self.covariance.take((experts * self.stride)[:, None] + plan_r)
        between *= self.part.take(experts)[:, None]
        between *= self.part.take(self.first_expert.take(right) + plan_r)
        gone = self.share.take(left, 1)[:, None] - self.share.take(right, 1)
        change = self.own.take(left, 1)[:, None] + self.own.take(right, 1)
        between *= 2
        change -= between
        variance = change + (self.variance.take(left) - 2 * self.with_npu.take(left, 1))[:, None]
        variance += between.sum(0)
        potential = self._soft(self.level.take(left) - gone, variance, self.unit.take(left), power)
        change += self.variance.take(right) - 2 * self.with_npu.take(right, 1)
        change += between.sum(1)[:, None]
        potential += self._soft(self.level.take(right) + gone, change, self.unit.take(right), power)
        return potential

    def regrown(self, power: int) -> tuple[Floats, Floats, Floats]:
        copies = self.copies.take(self.first_expert + self.plan)
        return (
            self._regrown(1 / np.maximum(copies - 1, np.float32(0.5)), power),
            self._regrown(-1 / (copies + 1), power),
            self._regrown(np.full_like(copies, -1), power),
        )

    def _regrown(self, factor: Floats, power: int) -> Floats:
        """Potentials if the slot's load grew by ``factor`` of itself."""
        variance = factor * self.own
        variance += 2 * self.with_npu
        variance *= factor
        variance += self.variance
        return self._soft(self.level + factor * self.share, variance, self.unit, power)

    def refilled(self, npus: Ints, slots: Ints, experts: Ints, power: int) -> Floats:
        first = np.arange(self.batch) * self.stride
        new = first + experts
        part = 1 / (self.copies.take(new) + 1)
        others = self.first_expert.take(npus) + self.plan.take(npus, 1)  # [K, P, B]
        kept = np.where(np.arange(self.width)[:, None, None] == slots, np.float32(0), self.part.take(others))
        covariance = self.covariance.take((others * self.stride)[:, :, None] + experts)
        covariance *= kept[:, :, None]
        mean = self.level[npus] - self.share[slots, npus]
        variance = self.variance[npus] - 2 * self.with_npu[slots, npus] + self.own[slots, npus]
        own = self.covariance.take(new * self.stride + experts) * part * part
        return self._soft(
            mean[:, None] + self.mean.take(new) * part,
            variance[:, None] + 2 * covariance.sum(0) * part + own,
            self.unit[npus][:, None],
            power,
        )
