"""What one process without any engine, fabric or transfer computes for a request."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from engine_fleet import LIMITS, MODEL

from flowserve.cache import SequenceKV
from flowserve.model import ExpertWeights, LocalExperts, Model, Weights, sample
from flowserve.wire import Sampling
from xccl import run
from xdeepserve_bench.engines.fleet import GREEDY


class Reference:
    """The model in this process."""

    def __init__(self) -> None:
        weights = Weights.open(MODEL)
        self._model = Model(weights, LIMITS.max_batch)
        self._experts = LocalExperts(ExpertWeights(weights))
        self._pool = self._model.new_pool(LIMITS.kv_blocks, LIMITS.kv_block_tokens)

    def answer(self, prompt: tuple[int, ...], tokens: int, sampling: Sampling = GREEDY) -> list[int]:
        """The first ``tokens`` tokens after ``prompt``, the end of sequence ignored."""
        kv = SequenceKV(self._pool)
        for start in range(0, len(prompt), LIMITS.prefill_chunk_tokens):
            chunk = np.array(prompt[start : start + LIMITS.prefill_chunk_tokens], np.int32)
            logits = run(self._model.prefill(chunk, start, kv, self._experts), timeout=60)
        answer = [sample(logits, sampling, len(prompt))]
        while len(answer) < tokens:
            step = self._model.decode(np.array(answer[-1:], np.int32), np.array([kv.length]), [kv], self._experts)
            answer.append(sample(run(step, timeout=60)[0], sampling, kv.length))
        kv.free()
        return answer
