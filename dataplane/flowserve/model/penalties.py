"""Penalties on tokens that were there before, as OpenAI's API and vLLM define them.

Repetition looks at prompt and answer, and divides a positive logit (multiplies a negative one) by its factor. Presence
and frequency look at the answer alone, and subtract: once for a token that is there, and once each time it is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from flowserve.model.arrays import FloatArray


class Penalties(Protocol):
    """1 and 0 are none."""

    @property
    def repetition_penalty(self) -> float: ...

    @property
    def presence_penalty(self) -> float: ...

    @property
    def frequency_penalty(self) -> float: ...


def penalised(logits: FloatArray, penalties: Penalties, tokens: Sequence[int], prompt: int) -> FloatArray:
    """Logits f32[V] after `tokens`, of which the first `prompt` are the prompt's: `logits` itself or a copy."""
    repetition = penalties.repetition_penalty
    presence, frequency = penalties.presence_penalty, penalties.frequency_penalty
    if not tokens or (repetition == 1.0 and presence == 0.0 and frequency == 0.0):
        return logits
    scores = logits.copy()
    if repetition != 1.0:
        seen = np.unique(np.array(tokens, np.intp))
        old = scores[seen]
        scores[seen] = np.where(old > 0.0, old / repetition, old * repetition)
    answer, counts = np.unique(np.array(tokens[prompt:], np.intp), return_counts=True)
    scores[answer] -= presence + frequency * counts
    return scores
