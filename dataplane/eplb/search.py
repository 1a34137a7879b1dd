"""Policy ``search``, the default: best balance on load not seen yet, within a budget counted in rounds, not seconds.

Pack by mean plus spread, small problems from several starts at once; then rounds of exchanges and reassignments on
``Moments``, the soft maximum growing harder from round to round; then, where deviations of slices last, a polish on the
``Slices`` themselves, hot NPUs first. Equal input, budget and seed give an equal plan.
"""

from dataclasses import dataclass

import numpy as np

from eplb.moments import Moments
from eplb.moves import exchange, reassign
from eplb.packing import pack
from eplb.problem import Problem, Slots
from eplb.slices import Slices
from eplb.state import State

KAPPA = 1.0  # standard deviations to be prepared for
CHEAP, MOST_STARTS = 2**15, 8  # slots of all layers that are searched at once; more starts where there are fewer
LEAST_EVEN = 0.5  # of the starts: how far the copies of hot experts are held back


@dataclass(frozen=True)
class Rounds:
    """``count`` rounds of exchanges and then reassignments; powers grow from ``softest`` to ``hardest``.

    ``hot``: share of NPUs that look for a partner. A round's reassignments end early when no layer finds one.
    """

    count: int
    exchanges: int
    reassigns: int
    softest: int
    hardest: int
    hot: float

    def run(self, state: State, rng: np.random.Generator) -> None:
        """Carries them out."""
        for power in np.linspace(self.softest, self.hardest, self.count).round().astype(int):
            for _ in range(self.exchanges):
                exchange(state, rng, int(power), self.hot)
            for _ in range(self.reassigns):
                if not reassign(state, int(power)):
                    break
        for _ in range(self.exchanges):
            exchange(state, rng, self.hardest, self.hot)


@dataclass(frozen=True)
class Budget:
    """How long to search: rounds on moments, and on slices where those pay."""

    coarse: Rounds
    fine: Rounds | None


BUDGETS = {
    "fast": Budget(Rounds(3, 8, 10, 3, 6, 0.5), None),
    "default": Budget(Rounds(14, 20, 12, 3, 6, 0.5), Rounds(6, 12, 4, 5, 7, 0.3)),
    "thorough": Budget(Rounds(48, 40, 20, 3, 6, 0.5), Rounds(24, 24, 8, 4, 7, 0.5)),
}


def search(problem: Problem, budget: Budget, seed: int) -> Slots:
    """[B, N, K]: a placement that keeps what is pinned and ignores how many moves it takes."""
    layers = len(problem.start)
    starts = int(np.clip(CHEAP // problem.start.size, 1, MOST_STARTS))
    problem = problem.at(np.tile(np.arange(layers), starts))
    evenness = np.repeat(np.linspace(1.0, LEAST_EVEN, starts, dtype=np.float32), layers)[:, None]
    rng = np.random.default_rng(seed)
    state = Moments(problem, pack(problem, problem.risk(KAPPA), evenness), KAPPA)
    budget.coarse.run(state, rng)
    slots, score = state.slots(), state.levels().max(1)
    if budget.fine and problem.persistent:
        exact = Slices(problem, slots)
        budget.fine.run(exact, rng)
        slots, score = exact.slots(), exact.barrier()
    best = score.reshape(starts, layers).argmin(0)
    return np.asarray(slots.reshape(starts, layers, *slots.shape[1:])[best, np.arange(layers)])
