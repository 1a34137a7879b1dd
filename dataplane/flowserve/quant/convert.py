"""From a checkpoint and calibration text to an INT8 checkpoint that the loader takes.

Quantised: the projections of attention and of dense, shared and routed MLPs. Left as they are: norms, routers, the
embedding, the head, kv_b (which the absorbed form of attention takes apart), and MTP layers. Smoothing goes into norm
weights where a norm makes the input, and into up_proj where SwiGLU does.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flowserve.model import FloatArray, IntArray
from flowserve.model.checkpoint import SINGLE_FILE, Checkpoint
from flowserve.model.config import INT8_METHOD, ModelConfig
from flowserve.model.weights import expert_name, layer_name
from flowserve.quant.calibration import Inputs, RecordingWeights, calibrate, expert_counts
from flowserve.quant.gptq import gptq
from flowserve.quant.smooth import smoothing
from flowserve.quant.writer import TensorShape, write_safetensors

COPIED = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja")


@dataclass(frozen=True)
class _Change:
    """What happens to one projection: its inputs are divided by `smooth`, its outputs (up_proj) by `outputs`."""

    smooth: FloatArray
    inputs: Inputs
    outputs: FloatArray | None = None


class Plan:
    """Which tensors change and how, from what calibration saw."""

    def __init__(self, weights: RecordingWeights, inputs: dict[str, Inputs]) -> None:
        self._weights = weights
        self._inputs = inputs
        self.projections: dict[str, _Change] = {}
        self.divided: dict[str, FloatArray] = {}  # norms by what they are divided by
        self.multiplied: dict[str, FloatArray] = {}  # routers, whose columns make up for it
        for layer in range(weights.config.num_hidden_layers):
            self._attention(f"{layer_name(layer)}")
            self._mlps(layer)

    def _attention(self, name: str) -> None:
        module = f"{name}.self_attn"
        if self._weights.config.q_lora_rank:
            self._behind_norm(f"{name}.input_layernorm", [f"{module}.q_a_proj", f"{module}.kv_a_proj_with_mqa"])
            self._behind_norm(f"{module}.q_a_layernorm", [f"{module}.q_b_proj"])
        else:
            self._behind_norm(f"{name}.input_layernorm", [f"{module}.q_proj", f"{module}.kv_a_proj_with_mqa"])
        out = self._inputs[f"{module}.o_proj"]
        self.projections[f"{module}.o_proj"] = _Change(np.ones(out.width, np.float32), out)

    def _mlps(self, layer: int) -> None:
        config, name = self._weights.config, layer_name(layer)
        mlps = [f"{name}.mlp"]
        if layer in config.moe_layers:
            mlps = [f"{name}.mlp.shared_experts", *(expert_name(layer, e) for e in range(config.n_routed_experts))]
        self._behind_norm(
            f"{name}.post_attention_layernorm", [f"{mlp}.{part}_proj" for mlp in mlps for part in ("gate", "up")]
        )
        if layer in config.moe_layers:
            self.multiplied[f"{name}.mlp.gate.weight"] = self.divided[f"{name}.post_attention_layernorm.weight"]
        for mlp in mlps:
            inputs = self._inputs[f"{mlp}.down_proj"]
            factors = smoothing(inputs.examples, inputs.largest, [self._weights.table(f"{mlp}.down_proj")])
            self.projections[f"{mlp}.down_proj"] = _Change(factors, inputs)
            up = self.projections[f"{mlp}.up_proj"]
            self.projections[f"{mlp}.up_proj"] = _Change(up.smooth, up.inputs, factors)

    def _behind_norm(self, norm: str, modules: list[str]) -> None:
        some = self._inputs[modules[0]]  # of attention, a dense MLP or the shared experts: every token was here
        factors = smoothing(some.examples, some.largest, [self._weights.table(module) for module in modules])
        self.divided[f"{norm}.weight"] = factors
        for module in modules:
            self.projections[module] = _Change(factors, self._inputs[module])

    def quantised(self, module: str) -> tuple[npt.NDArray[np.int8], FloatArray]:
        """Integers and scales of a projection."""
        change = self.projections[module]
        weight = self._weights.table(module).astype(np.float64) * change.smooth
        if change.outputs is not None:
            weight /= change.outputs[:, None]
        smooth = change.smooth.astype(np.float64)
        return gptq(weight, change.inputs.gram / np.outer(smooth, smooth))


def quantise(
    source: Path, target: Path, tokens: IntArray, report: Callable[[str], None] = lambda _line: None
) -> dict[int, list[int]]:
    """Writes `target`; returns how many tokens each expert of each MoE layer saw.

    Raises CheckpointError, TooFewSamples, or FileExistsError if `target` holds a model already.
    """
    if (target / SINGLE_FILE).exists():
        raise FileExistsError(f"{target}: holds a model already")
    checkpoint = Checkpoint(source)
    weights = RecordingWeights(checkpoint, ModelConfig.load(source))
    report(f"reading {len(tokens)} tokens")
    inputs = calibrate(weights, tokens)
    counts = expert_counts(weights, inputs)
    for layer, row in counts.items():
        report(f"layer {layer}: experts saw {min(row)} to {max(row)} tokens")
    plan = Plan(weights, inputs)
    target.mkdir(parents=True, exist_ok=True)
    report(f"rounding {len(plan.projections)} projections")
    shapes = dict(_shapes(checkpoint, plan))
    write_safetensors(target / SINGLE_FILE, shapes, _tensors(checkpoint, weights, plan))
    _describe(source, target)
    return counts


def _stays(checkpoint: Checkpoint) -> Iterator[str]:
    """The names to carry over; the scales of float8 weights are applied and gone."""
    return (name for name in checkpoint.names() if not name.endswith("_scale_inv"))


def _shapes(checkpoint: Checkpoint, plan: Plan) -> Iterator[tuple[str, TensorShape]]:
    for name in _stays(checkpoint):
        shape, module = checkpoint.shape(name), name.removesuffix(".weight")
        if module in plan.projections:
            yield name, TensorShape("I8", shape)
            yield f"{module}.weight_scale", TensorShape("F32", shape[:1])
        else:
            yield name, TensorShape("F32", shape)


def _tensors(checkpoint: Checkpoint, weights: RecordingWeights, plan: Plan) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    for name in _stays(checkpoint):
        module = name.removesuffix(".weight")
        if module in plan.projections:
            codes, scales = plan.quantised(module)
            yield name, codes
            yield f"{module}.weight_scale", scales
        elif name in plan.divided:
            yield name, checkpoint.read(name) / plan.divided[name]
        elif name in plan.multiplied:
            yield name, weights.table(module) * plan.multiplied[name]
        else:
            yield name, weights.table(module) if name != module else checkpoint.read(name)


def _describe(source: Path, target: Path) -> None:
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {"quant_method": INT8_METHOD, "activations": "token", "weights": "channel"}
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    for name in COPIED:
        if (source / name).exists():
            shutil.copy(source / name, target / name)
