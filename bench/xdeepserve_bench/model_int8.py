"""INT8 against float32 on one model, as a worker of ``bench model``.

What the float32 model writes itself, at temperature 1, calibrates. Both models then read passages of a text that the
model has not seen (`held_out.txt` beside its weights). Perplexity is over these; agreement is how often both would
choose the same next token, each time after the same text.
"""

import argparse
import functools
import math
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flowserve.cache import SequenceKV
from flowserve.model import ExpertWeights, FloatArray, IntArray, LocalExperts, Model, Weights, sample
from flowserve.model.checkpoint import Checkpoint
from flowserve.model.prefill import PrefillAttention
from flowserve.model.weights import EMBEDDING, model_shapes
from flowserve.quant.convert import quantise
from flowserve.text import Tokenizer
from flowserve.wire import Sampling
from xccl import run
from xdeepserve_bench.model_worker import serve, timed

HELD_OUT = "held_out.txt"
START = 0  # the beginning-of-text token
TEXTS, LENGTH, BLOCK = 16, 256, 32
CALIBRATIONS = 3
STEPS = 128
LIMIT_SECONDS = 600.0
ITEM_BYTES = {"I8": 1, "F32": 4}


@dataclass
class Runtime:
    """A model with its experts, which writes and reads texts i32[TEXTS, n] that begin with START."""

    model: Model
    experts: LocalExperts

    @classmethod
    def load(cls, directory: Path) -> "Runtime":
        weights = Weights.open(directory)
        return cls(Model(weights, max_batch=TEXTS), LocalExperts(ExpertWeights(weights)))

    def write(self, seed: int) -> IntArray:
        pool = self.model.new_pool(TEXTS * (LENGTH // BLOCK + 1), BLOCK)
        sequences = [SequenceKV(pool) for _ in range(TEXTS)]
        texts = np.full((TEXTS, LENGTH + 1), START, np.int32)
        for position in range(LENGTH):
            positions = np.full(TEXTS, position, np.int32)
            step = self.model.decode(texts[:, position], positions, sequences, self.experts)
            for text, row in enumerate(run(step, timeout=LIMIT_SECONDS)):
                texts[text, position + 1] = sample(row, Sampling(seed=seed + text), position + 1)
        return texts

    def read(self, text: IntArray) -> FloatArray:
        """Logits f32[n, V] after each token of one text i32[n]."""
        sequence = SequenceKV(self.model.new_pool(len(text) // BLOCK + 1, BLOCK))
        sequence.append(len(text))
        attention = PrefillAttention(sequence, self.model.rotations(np.arange(len(text), dtype=np.int32)))
        steps = self.model.forward(self.model.embed(text), attention, self.experts, len(text))
        return self.model.logits(run(steps, timeout=LIMIT_SECONDS))


class Int8:
    """Quantises the checkpoint into a temporary directory and compares."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def _passages(self) -> IntArray:
        """Passages i32[TEXTS, LENGTH + 1] that begin with START, spread evenly over the text."""
        text = (self._directory / HELD_OUT).read_text(encoding="utf-8")
        tokens = np.array(Tokenizer(self._directory).encode(text), np.int32)
        starts = np.linspace(0, len(tokens) - LENGTH, TEXTS).astype(int)
        passages = np.full((TEXTS, LENGTH + 1), START, np.int32)
        for passage, start in zip(passages, starts, strict=True):
            passage[1:] = tokens[start : start + LENGTH]
        return passages

    def compare(self) -> dict[str, Any]:
        """Agreement, perplexities, and bytes of what stays in memory: everything but the embedding table."""
        before = Runtime.load(self._directory)
        texts = self._passages()
        calibration = np.concatenate([before.write(seed=TEXTS * one).reshape(-1) for one in range(CALIBRATIONS)])
        with tempfile.TemporaryDirectory(prefix="xdeepserve-bench-") as root:
            quantise(self._directory, Path(root), calibration)
            after = Runtime.load(Path(root))
            scores = [(before.read(text[:-1]), after.read(text[:-1])) for text in texts]
            sizes = [_bytes(directory) for directory in (self._directory, Path(root))]
            times = _step_times(before, after)
        return {
            "tokens": TEXTS * LENGTH,
            "agreement": float(np.mean([a.argmax(axis=1) == b.argmax(axis=1) for a, b in scores])),
            "perplexity": _perplexity([a for a, _ in scores], texts),
            "perplexity_int8": _perplexity([b for _, b in scores], texts),
            "seconds": times[0],
            "seconds_int8": times[1],
            "bytes": sizes[0],
            "bytes_int8": sizes[1],
        }


def _step_times(*runtimes: Runtime) -> list[float]:
    """The median decode step of one sequence, in turns."""
    sequences = [SequenceKV(one.model.new_pool(LENGTH // BLOCK, BLOCK)) for one in runtimes]
    seconds: list[list[float]] = [[] for _ in runtimes]
    token = np.array([START], np.int32)
    for position in range(STEPS):
        for one, sequence, mine in zip(runtimes, sequences, seconds, strict=True):
            step = one.model.decode(token, np.array([position], np.int32), [sequence], one.experts)
            mine.append(timed(functools.partial(run, step, timeout=LIMIT_SECONDS)))
    return [statistics.median(mine) for mine in seconds]


def _perplexity(logits: list[FloatArray], texts: IntArray) -> float:
    total = 0.0
    for scores, text in zip(logits, texts, strict=True):
        shifted = scores.astype(np.float64) - scores.max(axis=1, keepdims=True)
        chosen = shifted[np.arange(len(scores)), text[1:]]
        total += float(np.mean(np.log(np.exp(shifted).sum(axis=1)) - chosen))
    return math.exp(total / len(texts))


def _bytes(directory: Path) -> int:
    checkpoint, weights = Checkpoint(directory), Weights.open(directory)
    shapes = dict(model_shapes(weights.config))
    del shapes[f"{EMBEDDING}.weight"]  # stays in the file, of which a few rows are read
    return sum(math.prod(shape) * ITEM_BYTES.get(checkpoint.dtype(name), 4) for name, shape in shapes.items())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=Path)
    serve(Int8(parser.parse_args().checkpoint), sys.stdin, sys.stdout)
