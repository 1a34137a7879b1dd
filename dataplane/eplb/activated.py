"""Policy ``activated``: balances how many different experts an NPU has to run, not how many tokens.

Decode is often bound by reading weights: an expert costs the same for one token as for ten. A copy that sees m tokens
an iteration on average is activated with probability 1 - exp(-m). Copies are chosen by load, as ever; then they are
placed so that the expected number of activated experts, plus its spread, is even.
"""

from dataclasses import replace

import numpy as np

from eplb.moments import Moments
from eplb.moves import exchange
from eplb.packing import pack
from eplb.problem import Problem, Slots
from eplb.search import KAPPA, Budget


def activated(problem: Problem, budget: Budget, seed: int, tokens: float) -> Slots:
    """[B, N, K]; ``tokens``: assignments an NPU gets in one iteration, on average."""
    rng = np.random.default_rng(seed)
    slots = pack(problem, problem.risk(KAPPA))
    copies = np.stack([np.bincount(layer[layer >= 0], minlength=problem.mean.shape[1]) for layer in slots])
    copies = np.maximum(copies, 1)
    chance = -np.expm1(-problem.mean * tokens / copies).astype(np.float32)
    variance = chance * (1 - chance) * copies**2
    experts = np.arange(problem.mean.shape[1])
    covariance = np.zeros_like(problem.covariance)
    covariance[:, experts, experts] = variance
    state = Moments(replace(problem, mean=chance * copies.astype(np.float32), covariance=covariance), slots, KAPPA)
    rounds = budget.plain
    for power in np.linspace(rounds.softest, rounds.hardest, rounds.count).round().astype(int):
        for _ in range(rounds.exchanges):
            exchange(state, rng, int(power), rounds.hot)
    return state.slots()
