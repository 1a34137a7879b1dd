"""Our runtime as a worker of ``bench model``; ``model_worker.py`` has the protocol.

Beside times it tells what a decode step touches: the weights that its products read and the KV that it attends to.
"""

import argparse
import math
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np

from flowserve.cache import SequenceKV
from flowserve.model import ExpertWeights, FloatArray, IntArray, LocalExperts, Model, Steps, Weights
from flowserve.model.weights import model_shapes
from xccl import run
from xdeepserve_bench.model_worker import serve, timed

BLOCK, BLOCKS, SEED = 32, 640, 7
LIMIT_SECONDS = 600.0
COPIED = 256 * 2**20


class Counting:
    """Local experts that remember how many of them each call used."""

    def __init__(self, experts: LocalExperts) -> None:
        self._experts = experts
        self.used = 0

    def __call__(self, layer: int, x: FloatArray, expert_ids: IntArray, weights: FloatArray) -> Steps[FloatArray]:
        self.used += len(np.unique(expert_ids))
        return self._experts(layer, x, expert_ids, weights)


class Flowserve:
    """The model with all of its experts in this process."""

    def __init__(self, directory: Path) -> None:
        weights = Weights.open(directory)
        self._model = Model(weights, max_batch=32)
        self._experts = LocalExperts(ExpertWeights(weights))
        weights.forget_pages()
        self._pool = self._model.new_pool(BLOCKS, BLOCK)
        self._draw = np.random.default_rng(SEED)

    def decode(self, batch: int, prompt: int, steps: int) -> dict[str, Any]:
        """The median of `steps` greedy steps after prompts of `prompt` tokens, and the bytes that a step touches."""
        sequences = [SequenceKV(self._pool) for _ in range(batch)]
        first = [
            run(self._model.prefill(self._tokens(prompt), 0, one, self._experts), timeout=LIMIT_SECONDS)
            for one in sequences
        ]
        tokens = np.stack(first).argmax(axis=1).astype(np.int32)
        self._step(tokens, sequences, self._experts)

        def step() -> None:
            nonlocal tokens
            tokens = self._step(tokens, sequences, self._experts)

        seconds = statistics.median(timed(step) for _ in range(steps))
        counting = Counting(self._experts)
        self._step(tokens, sequences, counting)
        touched = self._touched(counting.used, sum(one.length for one in sequences))
        for one in sequences:
            one.free()
        return {"seconds": seconds, "touched": touched}

    def prefill(self, tokens: int) -> dict[str, Any]:
        """Seconds for one prompt in one chunk."""
        sequence, prompt = SequenceKV(self._pool), self._tokens(tokens)
        prefill = self._model.prefill(prompt, 0, sequence, self._experts)
        seconds = timed(lambda: run(prefill, timeout=LIMIT_SECONDS))
        sequence.free()
        return {"seconds": seconds}

    def copy(self) -> dict[str, Any]:
        """Bytes a second that this machine copies, read and written ones counted, as STREAM does."""
        source, target = np.ones(COPIED, np.uint8), np.empty(COPIED, np.uint8)
        np.copyto(target, source)
        best = min(timed(lambda: np.copyto(target, source)) for _ in range(5))
        return {"bytes_per_second": 2 * COPIED / best}

    def _step(self, tokens: IntArray, sequences: list[SequenceKV], experts: LocalExperts | Counting) -> IntArray:
        positions = np.array([one.length for one in sequences], np.int32)
        logits = run(self._model.decode(tokens, positions, sequences, experts), timeout=LIMIT_SECONDS)
        chosen: IntArray = logits.argmax(axis=1).astype(np.int32)
        return chosen

    def _tokens(self, count: int) -> IntArray:
        return self._draw.integers(3, self._model.config.vocab_size, count, dtype=np.int32)

    def _touched(self, experts: int, cached_tokens: int) -> int:
        config = self._model.config
        shapes = dict(model_shapes(config))
        always = [shape for name, shape in shapes.items() if ".experts." not in name and "embed_tokens" not in name]
        expert = 3 * config.hidden_size * config.moe_intermediate_size
        kv = cached_tokens * config.latent_width * config.num_hidden_layers
        return 4 * (sum(map(math.prod, always)) + experts * expert + kv)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=Path)
    serve(Flowserve(parser.parse_args().checkpoint), sys.stdin, sys.stdout)
