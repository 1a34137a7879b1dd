"""Policy ``greedy``: the greedy method of arXiv 2508.02520, with its two flaws mended.

As published: candidates are the hottest expert of each slice; the copy that lowers the sum over slices of the hottest
expert's load most is added, until the slots are spent; copies are placed heaviest first. Mended: no NPU gets an expert
twice; and a copy goes where the barrier feels it least, which is the most loaded NPU, slice by slice, not the window's.
"""

import numpy as np
from numpy.typing import NDArray

from eplb.packing import choose_copies, held_by, place
from eplb.problem import Problem, Slots


def greedy(problem: Problem) -> Slots:
    """[B, N, K]: keeps what is pinned."""
    experts = problem.mean.shape[1]
    held = held_by(problem.fixed_slots(), experts)
    copies = _copies(problem, held)
    return place(problem, problem.slices.mean(0), copies, held, problem.slices)


def _copies(problem: Problem, held: NDArray[np.bool_]) -> Slots:
    """[B, E]: one copy a step, for the candidate that relieves the slices most."""
    full = choose_copies(problem, problem.mean, held)
    free = problem.movable.sum(2)
    pinned = held.sum(1)
    most = pinned + ((free > 0)[:, :, None] & ~held).sum(1)
    copies = np.maximum(pinned, 1)
    left = full.sum(1) - copies.sum(1)
    rows = np.arange(len(copies))
    load = (problem.slices / copies).astype(np.float32)
    for step in range(int(left.max(initial=0))):
        hottest = load.argmax(2)  # [T, B]
        top = np.take_along_axis(load, hottest[:, :, None], 2)[:, :, 0]
        second = np.partition(load, -2, axis=2)[:, :, -2] if load.shape[2] > 1 else np.zeros_like(top)
        count = copies[rows, hottest]
        relief = top - np.maximum(second, top * count / (count + 1))
        gain = np.zeros(copies.shape, np.float32)
        np.add.at(gain, (rows, hottest), relief)
        # Where the two hottest are level, one copy alone relieves nothing: then the candidate with most load.
        gain += np.float32(1e-6) * load.mean(0)
        gain[copies >= most] = -1
        chosen = gain.argmax(1)
        grow = (left > step) & (copies[rows, chosen] < most[rows, chosen])
        copies[rows, chosen] += grow
        load[:, rows, chosen] = problem.slices[:, rows, chosen] / copies[rows, chosen]
    return np.asarray(copies, np.int64)
