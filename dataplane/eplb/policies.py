"""Policies by name, and the plug-in point for a user's own.

A policy turns a ``Problem`` into slots [B, N, K]. An installed package adds one under the entry point group
``xdeepserve.eplb_policies``; what it returns is checked like everything else, so it cannot lose an expert.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points

from eplb.activated import activated
from eplb.errors import Unplannable
from eplb.greedy import greedy
from eplb.incremental import incremental
from eplb.problem import Problem, Slots
from eplb.search import BUDGETS, Budget, search

GROUP = "xdeepserve.eplb_policies"
DEFAULT_MOVES = 8  # a layer, of policy ``incremental``


@dataclass(frozen=True)
class Options:
    """What a policy may be told. ``moves``: limit a layer, None for none; in a hierarchical cluster each
    server gets its even part of it. ``tokens``: assignments an NPU gets in one
    iteration, for ``activated``."""

    budget: Budget = BUDGETS["default"]
    seed: int = 3
    moves: int | None = None
    tokens: float = 64.0


Policy = Callable[[Problem, Options], Slots]


def _search(problem: Problem, options: Options) -> Slots:
    if options.moves is not None:
        return incremental(problem, options.budget, options.seed, options.moves)
    return search(problem, options.budget, options.seed)


def _incremental(problem: Problem, options: Options) -> Slots:
    moves = DEFAULT_MOVES if options.moves is None else options.moves
    return incremental(problem, options.budget, options.seed, moves)


BUILT_IN: dict[str, Policy] = {
    "search": _search,
    "incremental": _incremental,
    "greedy": lambda problem, _: greedy(problem),
    "activated": lambda problem, options: activated(problem, options.budget, options.seed, options.tokens),
    "none": lambda problem, _: problem.start,
}


def names() -> list[str]:
    """Names of all policies, installed ones included."""
    return [*BUILT_IN, *sorted({point.name for point in entry_points(group=GROUP)} - set(BUILT_IN))]


def policy(name: str) -> Policy:
    """The policy of that name; a built-in one cannot be replaced."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    for point in entry_points(group=GROUP, name=name):
        loaded: Policy = point.load()
        return loaded
    raise Unplannable(f"there is no policy {name!r}; there are {', '.join(names())}")
