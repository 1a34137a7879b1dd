"""Policy ``search``, the default: best balance on load not seen yet, within a budget counted in rounds, not seconds.

Pack by mean plus spread, small problems from several starts at once; then rounds of exchanges and reassignments on
``Moments``, the soft maximum growing harder from round to round. Where deviations of slices last, shakes follow, and
rounds on the ``Slices`` themselves. Equal input, budget and seed give an equal plan.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eplb.moments import Moments
from eplb.moves import exchange, reassign
from eplb.packing import pack
from eplb.problem import Problem, Slots
from eplb.shake import shake
from eplb.slices import Slices
from eplb.state import State

KAPPA = 1.0  # standard deviations to be prepared for
CHEAP, MOST_STARTS = 2**15, 8  # slots of all layers that are searched at once; more starts where there are fewer
SHAKEN = 7  # power: all but the true maximum
MOST_RIGID = 4.0
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
    """How long to search. Where load does not last, ``plain`` rounds; where it does, ``opening`` rounds, ``shakes``
    and, on slices, ``fine`` rounds: sharper means, which would only fit noise otherwise."""

    plain: Rounds
    opening: Rounds
    shakes: int
    fine: Rounds | None


_BRIEF = Rounds(2, 8, 8, 3, 6, 0.5)
BUDGETS = {
    "fast": Budget(_BRIEF, _BRIEF, 0, None),
    "default": Budget(Rounds(14, 20, 12, 3, 6, 0.5), Rounds(3, 16, 12, 3, 6, 0.5), 76, Rounds(4, 12, 4, 5, 7, 0.3)),
    "thorough": Budget(Rounds(48, 40, 20, 3, 6, 0.5), Rounds(8, 20, 12, 3, 6, 0.5), 600, Rounds(16, 24, 8, 4, 7, 0.5)),
}


def search(problem: Problem, budget: Budget, seed: int) -> Slots:
    """[B, N, K]: a placement that keeps what is pinned and ignores how many moves it takes."""
    layers = len(problem.start)
    starts = int(np.clip(CHEAP // problem.start.size, 1, MOST_STARTS))
    problem = problem.at(np.tile(np.arange(layers), starts))
    evenness = np.repeat(np.linspace(1.0, LEAST_EVEN, starts, dtype=np.float32), layers)[:, None]
    rng = np.random.default_rng(seed)
    state = Moments(problem, pack(problem, problem.risk(KAPPA), evenness), KAPPA)
    if not problem.persistent:
        budget.plain.run(state, rng)
        return _best(state.slots(), state.levels().max(1), starts)
    budget.opening.run(state, rng)
    # Pins leave fewer ways to settle, so more shakes fail: as many more of them.
    rigid = float(problem.open.sum()) / max(1.0, float(problem.movable.sum()))
    for _ in range(round(budget.shakes * min(rigid, MOST_RIGID))):
        shake(state, rng, SHAKEN)
    if not budget.fine:
        return _best(state.slots(), state.levels().max(1), starts)
    exact = Slices(problem, state.slots())
    budget.fine.run(exact, rng)
    return _best(exact.slots(), exact.barrier(), starts)


def _best(slots: Slots, score: NDArray[np.float32], starts: int) -> Slots:
    """Of ``starts`` placements of each layer the one with the least score."""
    layers = len(slots) // starts
    best = score.reshape(starts, layers).argmin(0)
    return np.asarray(slots.reshape(starts, layers, *slots.shape[1:])[best, np.arange(layers)])
