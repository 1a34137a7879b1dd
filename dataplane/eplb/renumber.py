"""Equal NPUs are interchangeable: giving them other numbers changes no balance, but saves moves.

Among NPUs of the same kind (slots, speed, background, server, nothing pinned), each set of experts of the new placement
goes to the NPU that already holds most of it, greedily, most first.
"""

import numpy as np
from numpy.typing import NDArray

from eplb.placement import EMPTY
from eplb.problem import Problem, Slots


def renumber(problem: Problem, slots: Slots, servers: int = 1) -> Slots:
    """[B, N, K]: the placement ``slots`` with NPUs renumbered towards ``problem.start``."""
    result = slots.copy()
    experts = problem.mean.shape[1]
    kinds = _kinds(problem, servers)
    for row in range(len(slots)):
        old, new = (_one_hot(layer, experts) for layer in (problem.start[row], slots[row]))
        shared = new @ old.T  # [new NPU, old NPU]: experts in common
        shared[kinds[row][:, None] != kinds[row]] = -1
        result[row] = slots[row][_match(shared, kinds[row])]
    return result


def _kinds(problem: Problem, servers: int) -> Slots:
    """[B, N]: NPUs with equal numbers may change places; one with a pinned slot with none."""
    batch, npus, _ = problem.start.shape
    server = np.broadcast_to(np.repeat(np.arange(servers), npus // servers), (batch, npus))
    alone = np.where(problem.pinned.any(2), np.arange(npus) + 1, 0)
    features = [problem.open.sum(2), problem.rate, problem.background, server, alone]
    table = np.stack([np.asarray(one, np.float64) for one in features], axis=2)
    _, kinds = np.unique(table.reshape(batch * npus, -1), axis=0, return_inverse=True)
    return np.asarray(kinds.reshape(batch, npus))


def _one_hot(layer: Slots, experts: int) -> NDArray[np.float32]:
    held = np.zeros((len(layer), experts + 1), np.float32)
    np.put_along_axis(held, np.where(layer == EMPTY, experts, layer), 1, 1)
    return held[:, :experts]


def _match(shared: NDArray[np.float32], kinds: Slots) -> Slots:
    """[N]: which new NPU gets each old number."""
    npus = len(shared)
    source = np.full(npus, -1)
    taken = np.zeros(npus, np.bool_)
    useful = np.argwhere(shared > 0)
    for new, old in useful[np.argsort(-shared[shared > 0], kind="stable")].tolist():
        if source[old] < 0 and not taken[new]:
            source[old], taken[new] = new, True
    for kind in np.unique(kinds):
        source[(source < 0) & (kinds == kind)] = np.flatnonzero(~taken & (kinds == kind))
    return source
