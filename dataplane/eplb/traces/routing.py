"""Token counts that a real gate could have produced.

Each token picks ``top_k`` different experts, so no count exceeds the tokens and a layer's slice adds up to
tokens * top_k; conversely any such counts can be dealt out to tokens.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eplb.errors import Unplannable

MOST_LIKELY = 0.97  # probability that one token picks one expert

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def inclusion_probabilities(weights: ArrayLike, top_k: int, most: float = MOST_LIKELY) -> Floats:
    """[..., experts]: probabilities proportional to ``weights`` that add up to ``top_k``, none above ``most``."""
    weight = np.asarray(weights, dtype=np.float64)
    if not 0 < top_k <= most * np.count_nonzero(weight, axis=-1).min():
        raise Unplannable(f"a token cannot pick {top_k} of these experts, each with probability {most} at most")
    capped = np.zeros(weight.shape, dtype=np.bool_)
    while True:
        free = np.where(capped, 0.0, weight)
        room = top_k - most * capped.sum(-1, keepdims=True)
        chance = np.where(capped, most, free * room / free.sum(-1, keepdims=True))
        over = chance > most + 1e-12
        if not over.any():
            return chance
        capped |= over


def route(rng: np.random.Generator, weights: ArrayLike, tokens: int, top_k: int) -> Ints:
    """[..., experts]: counts for ``weights``: binomial, then repaired to the exact total."""
    chance = inclusion_probabilities(weights, top_k)
    counts = rng.binomial(tokens, np.minimum(chance, 1.0)).astype(np.int64)
    rows = counts.reshape(-1, counts.shape[-1])
    for row, probability in zip(rows, chance.reshape(rows.shape), strict=True):
        while missing := tokens * top_k - int(row.sum()):
            step = rng.multinomial(abs(missing), probability / probability.sum())
            row[:] = np.clip(row + np.sign(missing) * step, 0, tokens)
    return counts


def drift(rng: np.random.Generator, slices: int, shape: tuple[int, ...], sigma: float, memory: float) -> Floats:
    """[slices, *shape]: stationary first-order process; ``memory`` is its correlation time in slices."""
    kept = np.exp(-1.0 / memory)
    walk = np.empty((slices, *shape))
    walk[0] = rng.normal(0.0, sigma, shape)
    for at in range(1, slices):
        walk[at] = kept * walk[at - 1] + rng.normal(0.0, sigma * np.sqrt(1 - kept**2), shape)
    return walk


def with_hottest(weights: Floats, ratio: Floats) -> Floats:
    """Weights [layers, experts] whose hottest expert is ``ratio`` [layers] times its layer's mean, none close to it."""
    weights = weights.copy()
    experts = weights.shape[1]
    for layer, wanted in enumerate(ratio):
        hot = int(weights[layer].argmax())
        rest = np.delete(weights[layer], hot)
        target = wanted / (experts - wanted) * rest.sum()
        for _ in range(50):
            rest = np.minimum(rest, 0.75 * target)
            target = wanted / (experts - wanted) * rest.sum()
        weights[layer] = np.insert(rest, hot, target)
    return weights


def bounded_power_law(
    rng: np.random.Generator, shape: tuple[int, ...], exponent: float, low: float, high: float
) -> Floats:
    """Samples with density proportional to x ** -exponent on [low, high]."""
    power = 1.0 - exponent
    samples = (low**power + rng.random(shape) * (high**power - low**power)) ** (1.0 / power)
    return np.asarray(samples)
