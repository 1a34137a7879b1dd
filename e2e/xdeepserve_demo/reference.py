"""What a single process computes for the same prompts: the yardstick that streams are checked against."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from flowserve.cache import SequenceKV
from flowserve.model import ExpertWeights, FloatArray, LocalExperts, Model, Weights
from xccl import Steps, run

BLOCK_TOKENS = 32
STEP_SECONDS = 60.0


class Reference:
    """Greedy continuations by the whole model in this process; answers are kept."""

    def __init__(self, checkpoint: Path) -> None:
        weights = Weights.open(checkpoint)
        self._model, self._experts = Model(weights, max_batch=1), LocalExperts(ExpertWeights(weights))
        self._known: dict[tuple[int, ...], list[int]] = {}

    def greedy(self, prompt: Sequence[int], tokens: int) -> list[int]:
        """The first ``tokens`` tokens after ``prompt``; end of sequence is ignored. Nothing follows no prompt.

        A stream that was refused before its first chunk has told no prompt, and must have no tokens.
        """
        if not prompt:
            return []
        key = tuple(prompt)
        if len(self._known.get(key, ())) < tokens:
            self._known[key] = self._compute(key, tokens)
        return self._known[key][:tokens]

    def _compute(self, prompt: tuple[int, ...], tokens: int) -> list[int]:
        pool = self._model.new_pool(-(-(len(prompt) + tokens) // BLOCK_TOKENS), BLOCK_TOKENS)
        sequence = SequenceKV(pool)
        logits = _result(self._model.prefill(np.asarray(prompt, np.int32), 0, sequence, self._experts))
        answer = [int(np.argmax(logits))]
        while len(answer) < tokens:
            step = np.asarray([answer[-1]], np.int32), np.asarray([sequence.length], np.int32)
            logits = _result(self._model.decode(*step, [sequence], self._experts))
            answer.append(int(np.argmax(logits[0])))
        return answer


def _result(steps: Steps[FloatArray]) -> FloatArray:
    return run(steps, timeout=STEP_SECONDS)
