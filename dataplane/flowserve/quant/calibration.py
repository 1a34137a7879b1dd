"""What goes into every projection while the model reads calibration text.

For each projection: how many rows came, some of them, the largest absolute value of each channel, and the Gram matrix
X^T X. SmoothQuant needs rows and values, GPTQ the matrix. Experts count apart: each sees only the tokens routed to it,
and one that saw too few would be quantised for nothing it ever meets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from flowserve.cache import SequenceKV
from flowserve.model import FloatArray, IntArray, Model, ModelConfig, Steps, Weights
from flowserve.model.checkpoint import Checkpoint
from flowserve.model.functional import gated
from flowserve.model.linear import Linear
from flowserve.model.weights import expert_name
from xccl import run

MIN_SAMPLES = 4
EXAMPLES, EXAMPLES_AT_ONCE = 128, 16
CHUNK = 512  # tokens of text that attend to each other
BLOCK = 32
STEP_SECONDS = 3600.0


class TooFewSamples(Exception):
    """Some experts saw too little of the calibration text; the message names them and their counts."""


@dataclass
class Inputs:
    """Statistics of the rows f32[T, K] that went into a projection."""

    width: int
    rows: int = 0
    largest: FloatArray = field(init=False)  # [K]
    gram: npt.NDArray[np.float64] = field(init=False)  # [K, K]
    examples: FloatArray = field(init=False)  # [at most EXAMPLES, K]

    def __post_init__(self) -> None:
        self.largest = np.zeros(self.width, np.float32)
        self.gram = np.zeros((self.width, self.width))
        self.examples = np.empty((0, self.width), np.float32)

    def add(self, x: FloatArray) -> None:
        """Takes some more rows into account."""
        if len(x):
            self.rows += len(x)
            np.maximum(self.largest, np.abs(x).max(axis=0), out=self.largest)
            self.gram += x.T @ x
            few = x[:: max(len(x) // EXAMPLES_AT_ONCE, 1)][: EXAMPLES - len(self.examples)]
            self.examples = np.concatenate([self.examples, few])


class _Recording(Linear):
    """A projection that remembers its inputs."""

    __slots__ = ("_inputs",)

    def __init__(self, weight: FloatArray, inputs: Inputs) -> None:
        super().__init__(weight)
        self._inputs = inputs

    def __call__(self, x: FloatArray) -> FloatArray:
        self._inputs.add(x)
        return super().__call__(x)


class RecordingWeights(Weights):
    """Weights whose projections record; `inputs` is by module."""

    def __init__(self, checkpoint: Checkpoint, config: ModelConfig) -> None:
        super().__init__(checkpoint, config)
        self.inputs: dict[str, Inputs] = {}

    def linear(self, *modules: str, scale: float = 1.0) -> Linear:
        stacked = np.concatenate([self.table(module) for module in modules]) * np.float32(scale)
        inputs = Inputs(stacked.shape[1])
        self.inputs.update(dict.fromkeys(modules, inputs))
        return _Recording(stacked, inputs)


class RecordingExperts:
    """`flowserve.model.Experts`, all in this process, one after the other, recording."""

    def __init__(self, weights: RecordingWeights) -> None:
        self._weights = weights
        self._experts: dict[tuple[int, int], tuple[Linear, Linear]] = {}

    def __call__(self, layer: int, x: FloatArray, expert_ids: IntArray, weights: FloatArray) -> Steps[FloatArray]:
        yield from ()
        total = np.zeros_like(x)
        for expert in np.unique(expert_ids).tolist():
            tokens, places = np.nonzero(expert_ids == expert)
            gate_up, down = self._expert(layer, expert)
            total[tokens] += down(gated(gate_up(x[tokens]))) * weights[tokens, places, None]
        return total

    def _expert(self, layer: int, expert: int) -> tuple[Linear, Linear]:
        key = layer, expert
        if key not in self._experts:
            module = expert_name(layer, expert)
            gate_up = self._weights.linear(f"{module}.gate_proj", f"{module}.up_proj")
            self._experts[key] = gate_up, self._weights.linear(f"{module}.down_proj")
        return self._experts[key]


def calibrate(weights: RecordingWeights, tokens: IntArray) -> dict[str, Inputs]:
    """Runs the model over the text i32[N], in chunks: the inputs of every projection that any token reached."""
    model, experts = Model(weights, max_batch=1), RecordingExperts(weights)
    pool = model.new_pool(-(-CHUNK // BLOCK), BLOCK)
    for chunk in _chunks(tokens, min(CHUNK, weights.config.max_position_embeddings)):
        sequence = SequenceKV(pool)
        run(model.prefill(chunk, 0, sequence, experts), timeout=STEP_SECONDS)
        sequence.free()
    return weights.inputs


def expert_counts(weights: Weights, inputs: dict[str, Inputs]) -> dict[int, list[int]]:
    """How many tokens each expert of each MoE layer saw. Raises TooFewSamples below MIN_SAMPLES."""
    nothing = Inputs(0)
    experts = range(weights.config.n_routed_experts)
    counts = {
        layer: [inputs.get(f"{expert_name(layer, expert)}.down_proj", nothing).rows for expert in experts]
        for layer in weights.config.moe_layers
    }
    starved = [
        f"layer {layer} expert {expert} saw {count}"
        for layer, row in counts.items()
        for expert, count in enumerate(row)
        if count < MIN_SAMPLES
    ]
    if starved:
        raise TooFewSamples(
            f"{len(starved)} experts saw fewer than {MIN_SAMPLES} tokens: {_some(starved)}. Give more calibration text"
        )
    return counts


def _chunks(tokens: IntArray, size: int) -> Iterator[IntArray]:
    for first in range(0, len(tokens), size):
        yield tokens[first : first + size]


def _some(names: Iterable[str], most: int = 5) -> str:
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
