"""Seeded load traces: skewed, drifting, shifting, bursting; each is a window to plan on and the one that follows it.

``paper``: as arXiv 2508.02520 describes production, the hottest expert at 18-30 times the mean, a fifth of the experts
above it, slow drift. ``mild``: a power law. ``domain_shift``: another hot set from the middle of the first window on.
``correlated``: groups of experts that get hot together, for about a slice. ``small``: for tests, with idle experts.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from eplb.errors import Unplannable
from eplb.load import LoadWindow
from eplb.traces.routing import Floats, bounded_power_law, drift, route, with_hottest

EXPERTS, TOP_K = 256, 8
TOKENS = 51_840  # a slice: three decode steps of 288 dies with 60 tokens each
LAYERS, FEWER_LAYERS = 58, 29
SLICES = 30  # of each window
FLICKER = 0.04  # of log weights, slice by slice
GROUPS = 16

Process = Callable[[np.random.Generator], Floats]


@dataclass(frozen=True)
class Recipe:
    """How a trace is made: log weights [2 * slices, layers, experts] from a seed, then tokens."""

    seed: int
    weights: Process
    tokens: int = TOKENS
    top_k: int = TOP_K


@dataclass(frozen=True, eq=False)
class Trace:
    """``fit``: the window to plan on. ``next``: the one that follows, to judge by."""

    fit: LoadWindow
    next: LoadWindow


def generate(name: str) -> Trace:
    """The trace of that name; a given NumPy version always gives the same one."""
    if name not in RECIPES:
        raise Unplannable(f"there is no trace {name!r}; there are {', '.join(RECIPES)}")
    recipe = RECIPES[name]
    rng = np.random.default_rng(recipe.seed)
    counts = route(rng, recipe.weights(rng), recipe.tokens, recipe.top_k)
    half = len(counts) // 2
    return Trace(LoadWindow.of(counts[:half], recipe.top_k), LoadWindow.of(counts[half:], recipe.top_k))


def _paper(rng: np.random.Generator) -> Floats:
    weights = rng.lognormal(0.0, 1.55, (LAYERS, EXPERTS))
    base = with_hottest(weights, rng.uniform(19.5, 29.5, LAYERS))
    log = _drifting(rng, base.shape, 0.15)
    log[:, np.arange(LAYERS), base.argmax(-1)] *= 0.25  # it stays the hottest
    return np.asarray(base * np.exp(log))


def _mild(rng: np.random.Generator) -> Floats:
    base = bounded_power_law(rng, (LAYERS, EXPERTS), 1.1, 1.0, 256.0)
    return np.asarray(base * np.exp(_drifting(rng, base.shape, 0.10)))


def _drifting(rng: np.random.Generator, shape: tuple[int, ...], sigma: float) -> Floats:
    return drift(rng, 2 * SLICES, shape, sigma, 100.0) + rng.normal(0, FLICKER, (2 * SLICES, *shape))


def _domain_shift(rng: np.random.Generator) -> Floats:
    common = rng.normal(0.0, 0.6, (FEWER_LAYERS, EXPERTS))
    first, second = (common + rng.normal(0.0, 1.1, common.shape) for _ in range(2))
    log = np.where(np.arange(2 * SLICES)[:, None, None] < SLICES // 2, first, second)
    return np.asarray(np.exp(log + _drifting(rng, common.shape, 0.10)))


def _correlated(rng: np.random.Generator) -> Floats:
    members = np.repeat(np.arange(GROUPS), EXPERTS // GROUPS)
    group = np.stack([rng.permutation(members) for _ in range(FEWER_LAYERS)])
    base = rng.normal(0.0, 0.8, (FEWER_LAYERS, EXPERTS))
    burst = drift(rng, 2 * SLICES, (FEWER_LAYERS, GROUPS), 0.35, 0.7)
    log = base + np.take_along_axis(burst, np.broadcast_to(group, (2 * SLICES, *group.shape)), -1)
    return np.asarray(np.exp(log + rng.normal(0, FLICKER, log.shape)))


def _small(rng: np.random.Generator) -> Floats:
    slices, layers, experts = 8, 4, 16
    base = np.ones((layers, experts))
    base[1, 5] = 25.0
    base[2] = 1.0 / np.arange(1, experts + 1) ** 1.1
    base[3] = rng.lognormal(0.0, 1.0, experts)
    base[3, [2, 7, 8, 13]] = 0.0
    log = drift(rng, 2 * slices, base.shape, 0.10, 20.0) + rng.normal(0, FLICKER, (2 * slices, *base.shape))
    return np.asarray(base * np.exp(log))


RECIPES = {
    "paper": Recipe(20_250_801, _paper),
    "mild": Recipe(20_250_802, _mild),
    "domain_shift": Recipe(20_250_803, _domain_shift),
    "correlated": Recipe(20_250_804, _correlated),
    "small": Recipe(20_250_805, _small, tokens=1500, top_k=2),
}
