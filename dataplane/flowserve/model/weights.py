"""Which tensors a DeepSeek-V3 checkpoint has, and what shape config.json gives each: the one list of names.

A projection is stored as [out, in]. `Weights.linear` makes it into the copy that products run on, after which the
checkpoint's own pages can be given back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from pathlib import Path

import numpy as np

from flowserve.model.arrays import FloatArray
from flowserve.model.checkpoint import Checkpoint
from flowserve.model.config import ModelConfig
from flowserve.model.errors import CheckpointError
from flowserve.model.int8 import COMPILED, Int8Linear, int8_linear, rounded_linear
from flowserve.model.linear import Linear

NamedShape = tuple[str, tuple[int, ...]]

EIGHT_BITS = ("I8", "F8_E4M3")
EMBEDDING = "model.embed_tokens"
FINAL_NORM = "model.norm"
HEAD = "lm_head"


def layer_name(layer: int) -> str:
    return f"model.layers.{layer}"


def expert_name(layer: int, expert: int) -> str:
    return f"{layer_name(layer)}.mlp.experts.{expert}"


class Weights:
    """The weights of one model, every name and shape of them checked before the first one is read."""

    def __init__(self, checkpoint: Checkpoint, config: ModelConfig) -> None:
        """Raises CheckpointError if a tensor is missing or has another shape than `config` says."""
        self.config = config
        self.rounds = False
        self._checkpoint = checkpoint
        self.check(model_shapes(config))

    @classmethod
    def open(cls, directory: Path, elsewhere: Mapping[str, Path] | None = None) -> Weights:
        """Opens the checkpoint in `directory`, but for files that lie `elsewhere`, by name.

        Raises CheckpointError or UnsupportedModel.
        """
        return cls(Checkpoint(directory, elsewhere), ModelConfig.load(directory))

    def rounded(self) -> Weights:
        """The same weights, whose projections are rounded to INT8 where that makes products faster.

        For what need not be exact: `rounds` says whether it is not.
        """
        other = copy(self)
        other.rounds = COMPILED
        return other

    def check(self, shapes: Iterable[NamedShape]) -> None:
        """Raises CheckpointError naming the first tensor of `shapes` that is not there as it should be.

        What is stored in 8 bits must be a projection, and have its scales.
        """
        for name, shape in shapes:
            self._checkpoint.check([(name, shape)])
            dtype = self._checkpoint.dtype(name)
            if dtype in EIGHT_BITS:
                if len(shape) != 2:
                    raise CheckpointError(f"{name} is stored as {dtype}, which only projections may be")
                self._checkpoint.check([self._scales_of(name, shape, dtype)])

    def linear(self, *modules: str, scale: float = 1.0) -> Linear | Int8Linear:
        """Projections with the same input, as one whose outputs lie side by side, times `scale`."""
        if all(self._checkpoint.dtype(f"{module}.weight") == "I8" for module in modules):
            scales = np.concatenate([self._row_scales(module) for module in modules])
            codes = np.concatenate([self._checkpoint.raw(f"{module}.weight") for module in modules])
            return int8_linear(codes, scales * np.float32(scale))
        stacked = np.concatenate([self.table(module) for module in modules])
        scaled = stacked * np.float32(scale) if scale != 1.0 else stacked
        return rounded_linear(scaled) if self.rounds else Linear(scaled)

    def alike(self, module: str, other: str) -> bool:
        """Whether two modules have the same weight, so that one copy in memory is enough."""
        return np.array_equal(self.table(module), self.table(other))

    def vector(self, name: str) -> FloatArray:
        """A copy of a one-dimensional tensor."""
        return self._checkpoint.read(name).copy()

    def table(self, module: str) -> FloatArray:
        """The weight as float32, without a copy where the file has it so: for tables of which few rows are used."""
        name = f"{module}.weight"
        stored = self._checkpoint.read(name)
        match self._checkpoint.dtype(name):
            case "F8_E4M3":
                return self._unblocked(stored, name)
            case "I8":
                return stored * self._row_scales(module)[:, None]
        return stored

    def _unblocked(self, codes: FloatArray, name: str) -> FloatArray:
        """Float8 weights f32[out, in] times the scales of their blocks, in place."""
        scales, _ = self._scales_of(name, codes.shape, "F8_E4M3")
        assert self.config.fp8_block is not None
        rows, columns = self.config.fp8_block
        for index, scale in enumerate(self._checkpoint.read(scales)):
            codes[index * rows : (index + 1) * rows] *= scale.repeat(columns)[: codes.shape[1]]
        return codes

    def _row_scales(self, module: str) -> FloatArray:
        """The scales f32[out] of a weight stored as I8."""
        return self._checkpoint.read(f"{module}.weight_scale")

    def _scales_of(self, name: str, shape: tuple[int, ...], dtype: str) -> NamedShape:
        """Where the scales of an 8-bit projection are, and their shape."""
        if dtype == "I8":
            return f"{name}_scale", shape[:1]
        if self.config.fp8_block is None:
            raise CheckpointError(f"{name} is stored as {dtype}, but config.json has no quantization_config for it")
        rows, columns = self.config.fp8_block
        return f"{name}_scale_inv", (-(-shape[0] // rows), -(-shape[1] // columns))

    def forget_pages(self) -> None:
        """Gives back the memory of the file's pages: everything but `table` is a copy."""
        self._checkpoint.forget_pages()


def model_shapes(config: ModelConfig) -> Iterator[NamedShape]:
    """Every tensor of the model, without its MTP layers.

    One after the other: a configuration that claims millions of experts fails at the first tensor that is missing.
    """
    yield f"{EMBEDDING}.weight", (config.vocab_size, config.hidden_size)
    yield f"{FINAL_NORM}.weight", (config.hidden_size,)
    yield f"{HEAD}.weight", (config.vocab_size, config.hidden_size)
    for layer in range(config.num_hidden_layers):
        yield from _layer_shapes(config, layer)


def mtp_shapes(config: ModelConfig, layer: int) -> Iterator[NamedShape]:
    """Every tensor of the MTP layer with this number, which is at least `num_hidden_layers`."""
    name = layer_name(layer)
    yield f"{name}.embed_tokens.weight", (config.vocab_size, config.hidden_size)
    yield f"{name}.shared_head.head.weight", (config.vocab_size, config.hidden_size)
    for norm in ("enorm", "hnorm", "shared_head.norm"):
        yield f"{name}.{norm}.weight", (config.hidden_size,)
    yield f"{name}.eh_proj.weight", (config.hidden_size, 2 * config.hidden_size)
    yield from _layer_shapes(config, layer)


def _layer_shapes(config: ModelConfig, layer: int) -> Iterator[NamedShape]:
    name = layer_name(layer)
    yield f"{name}.input_layernorm.weight", (config.hidden_size,)
    yield f"{name}.post_attention_layernorm.weight", (config.hidden_size,)
    yield from _attention_shapes(config, f"{name}.self_attn")
    if layer >= config.first_k_dense_replace:
        yield from _moe_shapes(config, layer)
    else:
        yield from _mlp_shapes(config, f"{name}.mlp", config.intermediate_size)


def _attention_shapes(config: ModelConfig, module: str) -> Iterator[NamedShape]:
    heads, nope, rope = config.num_attention_heads, config.qk_nope_head_dim, config.qk_rope_head_dim
    if config.q_lora_rank:
        yield f"{module}.q_a_proj.weight", (config.q_lora_rank, config.hidden_size)
        yield f"{module}.q_a_layernorm.weight", (config.q_lora_rank,)
        yield f"{module}.q_b_proj.weight", (heads * (nope + rope), config.q_lora_rank)
    else:
        yield f"{module}.q_proj.weight", (heads * (nope + rope), config.hidden_size)
    yield f"{module}.kv_a_proj_with_mqa.weight", (config.latent_width, config.hidden_size)
    yield f"{module}.kv_a_layernorm.weight", (config.kv_lora_rank,)
    yield f"{module}.kv_b_proj.weight", (heads * (nope + config.v_head_dim), config.kv_lora_rank)
    yield f"{module}.o_proj.weight", (config.hidden_size, heads * config.v_head_dim)


def _moe_shapes(config: ModelConfig, layer: int) -> Iterator[NamedShape]:
    module, inner = f"{layer_name(layer)}.mlp", config.moe_intermediate_size
    yield f"{module}.gate.weight", (config.n_routed_experts, config.hidden_size)
    if config.topk_method == "noaux_tc":
        yield f"{module}.gate.e_score_correction_bias", (config.n_routed_experts,)
    yield from _mlp_shapes(config, f"{module}.shared_experts", config.n_shared_experts * inner)
    for expert in range(config.n_routed_experts):
        yield from _mlp_shapes(config, expert_name(layer, expert), inner)


def _mlp_shapes(config: ModelConfig, module: str, inner: int) -> Iterator[NamedShape]:
    yield f"{module}.gate_proj.weight", (inner, config.hidden_size)
    yield f"{module}.up_proj.weight", (inner, config.hidden_size)
    yield f"{module}.down_proj.weight", (config.hidden_size, inner)
