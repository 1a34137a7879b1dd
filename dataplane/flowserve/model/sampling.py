"""Choosing the next token from logits, as a pure function.

The one random number of a choice is a hash of (seed, position), so a replay after a fault draws the same tokens,
whatever ran beside it and wherever it runs. Whoever wants requests to differ gives them different seeds.
"""

from __future__ import annotations

import hashlib
from typing import Protocol

import numpy as np
import numpy.typing as npt

from flowserve.model.arrays import FloatArray


class SamplingParams(Protocol):
    """How tokens are chosen; `flowserve.wire.Sampling` is one, and bounds the values."""

    @property
    def temperature(self) -> float:
        """0 is greedy."""
        ...

    @property
    def top_p(self) -> float:
        """Only the fewest tokens whose probabilities reach it, in (0, 1]."""
        ...

    @property
    def top_k(self) -> int:
        """Only the most likely tokens, this many; 0: all."""
        ...

    @property
    def seed(self) -> int: ...


def sample(logits: FloatArray, params: SamplingParams, position: int) -> int:
    """The token to stand at `position`, from the logits f32[V] for it. Among equals the lower number comes first."""
    if params.temperature == 0.0:
        return int(logits.argmax())
    tokens = _best_first(logits, params.top_k)
    scores = logits[tokens].astype(np.float64)
    weights = np.exp((scores - scores[0]) / params.temperature)
    mass = weights.cumsum()
    if params.top_p < 1.0:  # the token that crosses top_p is kept
        mass = mass[: int(mass.searchsorted(params.top_p * mass[-1])) + 1]
    drawn = uniform(params.seed, position) * mass[-1]
    return int(tokens[min(int(mass.searchsorted(drawn, side="right")), len(mass) - 1)])


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on the arguments only."""
    digest = hashlib.blake2b(f"{seed} {position}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def _best_first(logits: FloatArray, top_k: int) -> npt.NDArray[np.intp]:
    """The `top_k` tokens (0: all) with the highest logits, in falling order."""
    order = np.argsort(-logits, kind="stable")
    return order[:top_k] if top_k else order
