"""Policy ``incremental``: at most so many moves a layer from the placement in force.

The same two moves as ``search``, but a copy that an NPU has to fetch costs potential, and one that goes home pays. The
price falls from round to round: first only what relieves the barrier most is worth a move, later lesser things, until
the limit is reached; what later turns out to be of no use goes home and frees its move.
"""

import numpy as np

from eplb.moments import Moments
from eplb.moves import exchange, reassign
from eplb.packing import repair
from eplb.problem import Problem, Slots
from eplb.search import KAPPA, Budget
from eplb.slices import Slices
from eplb.state import MoveLimit, State

DEAREST, CHEAPEST = 1.0, 0.003  # of a move, in potential; the most loaded NPU's is 1
ROUNDS, FAST_ROUNDS = 16, 8
EXCHANGES, REASSIGNS = 6, 5
SOFT, HARD = 5, 6
HOT = 0.5


def incremental(problem: Problem, budget: Budget, seed: int, moves: int) -> Slots:
    """[B, N, K]: experts without a copy get one first, whatever the limit says: every expert must be reachable."""
    rng = np.random.default_rng(seed)
    start = repair(problem)
    limit = MoveLimit(moves, DEAREST)
    state: State = Slices(problem, start, limit) if problem.persistent else Moments(problem, start, KAPPA, limit)
    rounds = ROUNDS if budget.fine else FAST_ROUNDS
    prices = np.geomspace(DEAREST, CHEAPEST, rounds)
    powers = np.linspace(SOFT, HARD, rounds).round().astype(int)
    for limit.price, power in zip(prices.tolist(), powers.tolist(), strict=True):
        for _ in range(REASSIGNS):
            if not reassign(state, power):
                break
        for _ in range(EXCHANGES):
            exchange(state, rng, power, HOT)
    return state.slots()
