"""A first placement: how many copies of each expert, then where, heaviest copy first.

Copies: everyone one, then one more for whoever has most load a copy, until the slots are spent. Places: copies by
falling weight, each on the NPU that is least loaded for its speed, has a free slot and does not hold the expert yet.
Should a copy fit nowhere any more, its slot goes to the heaviest expert that does fit: no NPU ever holds one twice.
"""

import numpy as np
from numpy.typing import NDArray

from eplb.placement import EMPTY
from eplb.problem import Problem, Slots


def pack(problem: Problem, weight: NDArray[np.float32], evenness: float | NDArray[np.float32] = 1.0) -> Slots:
    """[B, N, K]: a placement that keeps what is pinned; ``weight`` [B, E] is the load to prepare for.

    ``evenness`` below 1 gives hot experts fewer copies than would make all copies equally heavy, a number or [B, 1].
    """
    held = held_by(problem.fixed_slots(), weight.shape[1])
    copies = choose_copies(problem, weight**evenness, held)
    return place(problem, weight, copies, held)


def choose_copies(problem: Problem, weight: NDArray[np.float32], held: NDArray[np.bool_]) -> Slots:
    """[B, E]: copies of each expert, pinned ones included; at least one, at most one an NPU."""
    free = problem.movable.sum(2)
    pinned = held.sum(1)
    most = pinned + ((free > 0)[:, :, None] & ~held).sum(1)
    copies = np.maximum(pinned, 1)
    left = free.sum(1) - (copies - pinned).sum(1)
    rows = np.arange(len(weight))
    # An idle expert still gets copies in its turn, after everyone with load.
    load = np.maximum(weight, np.float32(1e-30))
    each = np.where(copies < most, load / copies, -1.0).astype(np.float64)
    for step in range(int(left.max(initial=0))):
        hottest = each.argmax(1)
        grow = (left > step) & (each[rows, hottest] > 0)
        copies[rows, hottest] += grow
        now = copies[rows, hottest]
        each[rows, hottest] = np.where(now < most[rows, hottest], load[rows, hottest] / now, -1.0)
    return np.asarray(copies, np.int64)


def place(
    problem: Problem,
    weight: NDArray[np.float32],
    copies: Slots,
    held: NDArray[np.bool_],
    slices: NDArray[np.float32] | None = None,
) -> Slots:
    """[B, N, K]: where the copies go; pinned ones stay.

    With ``slices`` [T, B, E], a copy goes where the sum over slices of the most loaded NPU grows least.
    """
    batch = len(weight)
    each = (weight / copies).astype(np.float32)
    barrier = None if slices is None else _Barrier(problem, (slices / copies).astype(np.float32), held)
    slots = problem.fixed_slots()
    held = held.copy()
    load = problem.background + np.where(held, each[:, None], 0).sum(2)
    movable = problem.movable
    free = movable.sum(2)
    rows = np.arange(batch)
    order = np.argsort(-each, axis=1, kind="stable")
    todo = np.take_along_axis(copies - held.sum(1), order, 1)
    turns = np.full((batch, int(todo.sum(1).max(initial=0))), EMPTY)
    for row in range(batch):
        queue = np.repeat(order[row], todo[row])
        turns[row, : len(queue)] = queue
    for expert in turns.T:
        wanted = expert != EMPTY
        fits = (free > 0) & ~held[rows, :, expert]
        cost = load * problem.rate if barrier is None else barrier.after(expert)
        npu = np.where(fits, cost, np.inf).argmin(1)
        ok = wanted & fits[rows, npu]
        for row in np.flatnonzero(wanted & ~ok).tolist():
            npu[row], expert[row] = _substitute(free[row], held[row], each[row])
            ok[row] = expert[row] != EMPTY
        done, npu, chosen = rows[ok], npu[ok], expert[ok]
        slots[done, npu, _first_free(movable[done, npu], slots[done, npu])] = chosen
        held[done, npu, chosen] = True
        free[done, npu] -= 1
        load[done, npu] += each[done, chosen]
        if barrier is not None:
            barrier.add(done, npu, chosen)
    return slots


def repair(problem: Problem) -> Slots:
    """[B, N, K]: the placement in force with as little changed as possible, so that every expert has a copy.

    Duplicates and what lies in closed slots are dropped; experts without a copy take empty slots, and where there are
    none, the slots of experts that have most copies.
    """
    slots = np.where(problem.open, problem.start, EMPTY)
    order = np.argsort(2 * slots + ~problem.pinned, axis=2)  # of equal experts the pinned one comes first, and stays
    ordered = np.take_along_axis(slots, order, 2)
    again = np.pad((ordered[:, :, 1:] == ordered[:, :, :-1]), ((0, 0), (0, 0), (1, 0)))
    np.put_along_axis(slots, order, np.where(again, EMPTY, ordered), 2)
    for layer, allowed in zip(slots, problem.movable, strict=True):
        copies = np.bincount(layer[layer != EMPTY], minlength=problem.mean.shape[1])
        for expert in np.flatnonzero(copies == 0):
            npu, slot = _room(layer, allowed, copies)
            if layer[npu, slot] != EMPTY:
                copies[layer[npu, slot]] -= 1
            layer[npu, slot] = expert
            copies[expert] = 1
    return slots


def _room(layer: Slots, allowed: NDArray[np.bool_], copies: NDArray[np.int64]) -> tuple[int, int]:
    """NPU and slot where an expert without a copy goes: an empty one, else that of the expert with most copies."""
    spare = np.where(allowed, np.where(layer == EMPTY, np.inf, copies[layer]), -np.inf)
    npu, slot = np.unravel_index(int(spare.argmax()), spare.shape)
    return int(npu), int(slot)


class _Barrier:
    """The load of each NPU in each slice, while copies are placed: [T, B, N]."""

    def __init__(self, problem: Problem, each: NDArray[np.float32], held: NDArray[np.bool_]) -> None:
        self._each, self._rate = each, problem.rate
        self._load = (problem.background + np.einsum("tbe,bne->tbn", each, held)) * problem.rate

    def after(self, experts: Slots) -> NDArray[np.float32]:
        """[B, N]: sum over slices of the most loaded NPU's load, if the expert went there; load itself breaks ties."""
        share = np.take_along_axis(self._each, experts[None, :, None], 2)
        load = self._load + share * self._rate
        top = self._load.max(2, keepdims=True)
        return np.asarray(np.maximum(load, top).sum(0) + np.float32(1e-3) * load.sum(0))

    def add(self, rows: Slots, npus: Slots, experts: Slots) -> None:
        """Places copies."""
        self._load[:, rows, npus] += self._each[:, rows, experts] * self._rate[rows, npus]


def held_by(slots: Slots, experts: int) -> NDArray[np.bool_]:
    """[B, N, E]: which NPU holds which expert."""
    batch, npus, _ = slots.shape
    held = np.zeros((batch, npus, experts + 1), np.bool_)
    np.put_along_axis(held, np.where(slots == EMPTY, experts, slots), True, 2)
    return held[:, :, :experts]


def _first_free(movable: NDArray[np.bool_], slots: Slots) -> NDArray[np.intp]:
    return np.asarray((movable & (slots == EMPTY)).argmax(1))


def _substitute(free: NDArray[np.int64], held: NDArray[np.bool_], each: NDArray[np.float32]) -> tuple[int, int]:
    """An NPU with a free slot and the heaviest expert that it does not hold; EMPTY if it holds them all."""
    npu = int(free.argmax())
    if held[npu].all():
        return npu, EMPTY
    return npu, int(np.where(held[npu], -1.0, each).argmax())
