"""Choosing the next token from logits, as a pure function.

Logits -> penalties -> temperature -> min-p -> top-k -> top-p -> one draw. The only random number of a choice is a hash
of (seed, position), so a replay after a fault draws the same tokens, whatever ran beside it and wherever it runs.
Whoever wants requests, or the `n` answers of one, to differ gives them different seeds.
Definitions are vLLM's: min-p is relative to the likeliest token, and top-p sums over what top-k left.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from flowserve.model.arrays import FloatArray
from flowserve.model.penalties import Penalties, penalised

Tokens = npt.NDArray[np.intp]
Weights = npt.NDArray[np.float64]


class SamplingParams(Penalties, Protocol):
    """How tokens are chosen; `flowserve.wire.Sampling` is one, and bounds the values."""

    @property
    def temperature(self) -> float:
        """0 is greedy."""
        ...

    @property
    def min_p(self) -> float:
        """Only tokens at least this many times as likely as the likeliest, in [0, 1]."""
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


def sample(
    logits: FloatArray, params: SamplingParams, position: int, tokens: Sequence[int] = (), prompt: int = 0
) -> int:
    """The token to stand at `position`, from the logits f32[V] for it. Among equals the lower number comes first.

    `tokens` are those before it, the first `prompt` of them the prompt's: penalties speak of them.
    """
    scores = penalised(logits, params, tokens, prompt)
    if params.temperature == 0.0:
        return int(scores.argmax())
    allowed, weights = candidates(scores, params)
    mass = weights.cumsum()
    drawn = uniform(params.seed, position) * mass[-1]
    return int(allowed[min(int(mass.searchsorted(drawn, side="right")), len(mass) - 1)])


def candidates(scores: FloatArray, params: SamplingParams) -> tuple[Tokens, Weights]:
    """The tokens that may be drawn, and numbers in proportion to their probabilities; temperature is above 0."""
    tokens = _best(scores, params.top_k) if params.top_k or params.top_p < 1.0 else np.arange(len(scores))
    weights = np.exp((scores[tokens].astype(np.float64) - float(scores.max())) / params.temperature)
    if params.min_p > 0.0:
        likely = weights >= params.min_p  # the likeliest token's weight is 1
        tokens, weights = tokens[likely], weights[likely]
    if params.top_p < 1.0:  # the token that crosses top_p is kept
        mass = weights.cumsum()
        kept = int(mass.searchsorted(params.top_p * mass[-1])) + 1
        tokens, weights = tokens[:kept], weights[:kept]
    return tokens, weights


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on the arguments only."""
    digest = hashlib.blake2b(f"{seed} {position}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


@dataclass(frozen=True)
class LogProbabilities:
    """Natural logarithms of the model's own probabilities, before any penalty or temperature."""

    chosen: float
    best: tuple[tuple[int, float], ...]  # the likeliest tokens, falling


def log_probabilities(logits: FloatArray, token: int, best: int) -> LogProbabilities:
    """Of the token that was chosen from logits f32[V], and of the `best` likeliest."""
    scores = logits.astype(np.float64)
    scores -= scores.max()
    scores -= np.log(np.exp(scores).sum())
    top = _best(logits, best) if best else ()
    return LogProbabilities(float(scores[token]), tuple((int(one), float(scores[one])) for one in top))


def _best(scores: FloatArray, count: int) -> Tokens:
    """The `count` tokens (0: all) with the highest scores, in falling order, without sorting the others."""
    if not 0 < count < len(scores):
        return np.argsort(-scores, kind="stable")
    least = np.partition(scores, len(scores) - count)[len(scores) - count]
    high = np.flatnonzero(scores >= least)
    return high[np.argsort(-scores[high], kind="stable")][:count]
