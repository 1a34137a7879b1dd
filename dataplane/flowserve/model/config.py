"""The shape of a DeepSeek model, read from config.json in the Hugging Face layout.

A field that changes the mathematics is either used here or refused with its name: a model is computed exactly or not
at all. The architectures are DeepSeek-V3 and DeepSeek-V2, of which V2-Lite has no q-LoRA. Rotary settings come in two
spellings, `rope_parameters` (transformers 5) and `rope_theta` with `rope_scaling` (DeepSeek's own files); the first
wins where both are given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from flowserve.model.errors import CheckpointError, UnsupportedModel
from flowserve.model.fields import Fields, read_json_object
from flowserve.model.rope import Rope, Yarn

ARCHITECTURES = {  # and how its experts are chosen where config.json does not say so
    "DeepseekV3ForCausalLM": ("sigmoid", "noaux_tc"),
    "DeepseekV2ForCausalLM": ("softmax", "greedy"),
}
INT8_METHOD = "xdeepserve-int8"
ROUTINGS = (("sigmoid", "noaux_tc"), ("softmax", "greedy"), ("softmax", "group_limited_greedy"))


@dataclass(frozen=True)
class ModelConfig:
    """Sizes in elements, names as in config.json."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    moe_intermediate_size: int
    num_hidden_layers: int
    first_k_dense_replace: int
    num_attention_heads: int
    q_lora_rank: int  # 0: queries are projected at once
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    n_routed_experts: int
    n_shared_experts: int
    num_experts_per_tok: int
    n_group: int
    topk_group: int
    scoring_func: str
    topk_method: str
    norm_topk_prob: bool
    routed_scaling_factor: float
    rms_norm_eps: float
    max_position_embeddings: int
    num_nextn_predict_layers: int
    rope: Rope
    fp8_block: tuple[int, int] | None  # rows and columns that share a scale, of weights stored as float8
    eos_token_ids: tuple[int, ...]

    @property
    def latent_width(self) -> int:
        """Elements of one token's latent KV in one layer: the compressed part, then the rotary key."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def softmax_scale(self) -> float:
        return self.rope.softmax_factor() / math.sqrt(self.qk_nope_head_dim + self.qk_rope_head_dim)

    @property
    def moe_layers(self) -> range:
        """The numbers of the main model's layers with routed experts: all after the first dense ones."""
        return range(self.first_k_dense_replace, self.num_hidden_layers)

    @classmethod
    def load(cls, directory: Path) -> ModelConfig:
        """Reads `directory`/config.json. Raises CheckpointError, or UnsupportedModel for another architecture."""
        path = directory / "config.json"
        values = read_json_object(path)
        named = values.get("architectures")
        architecture = named[0] if isinstance(named, list) and len(named) == 1 else None
        if not isinstance(architecture, str) or architecture not in ARCHITECTURES:
            raise UnsupportedModel(
                f"{path}: architectures = {named!r} is not supported, only one of {', '.join(ARCHITECTURES)}"
            )
        return _parse(Fields(values, str(path)), str(path), *ARCHITECTURES[architecture])


def _parse(fields: Fields, origin: str, scoring_func: str, topk_method: str) -> ModelConfig:
    fields.expect("attention_bias", False)
    fields.expect("hidden_act", "silu")
    fields.expect("moe_layer_freq", 1)
    fields.expect("rope_interleave", True)
    fields.expect("tie_word_embeddings", False)
    routing = fields.text("scoring_func", scoring_func), fields.text("topk_method", topk_method)
    if routing not in ROUTINGS:
        raise UnsupportedModel(
            f"{origin}: scoring_func = {routing[0]!r} with topk_method = {routing[1]!r} is not supported, "
            f"only {', '.join(map(' with '.join, ROUTINGS))}"
        )
    grouped = routing[1] != "greedy"
    vocabulary = fields.integer("vocab_size", high=1 << 20)
    heads = fields.integer("num_attention_heads", high=1024)
    fields.expect("num_key_value_heads", heads)
    config = ModelConfig(
        vocab_size=vocabulary,
        hidden_size=fields.integer("hidden_size", high=1 << 17),
        intermediate_size=fields.integer("intermediate_size", high=1 << 20),
        moe_intermediate_size=fields.integer("moe_intermediate_size", high=1 << 20),
        num_hidden_layers=fields.integer("num_hidden_layers", high=1024),
        first_k_dense_replace=fields.integer("first_k_dense_replace", 0, low=0, high=1024),
        num_attention_heads=heads,
        q_lora_rank=fields.integer("q_lora_rank", 0, low=0, high=1 << 17),
        kv_lora_rank=fields.integer("kv_lora_rank", high=1 << 17),
        qk_nope_head_dim=fields.integer("qk_nope_head_dim", high=1 << 12),
        qk_rope_head_dim=fields.integer("qk_rope_head_dim", high=1 << 12),
        v_head_dim=fields.integer("v_head_dim", high=1 << 12),
        n_routed_experts=fields.integer("n_routed_experts", high=1 << 14),
        n_shared_experts=fields.integer("n_shared_experts", high=64),
        num_experts_per_tok=fields.integer("num_experts_per_tok", high=1 << 10),
        n_group=fields.integer("n_group", 1, high=1 << 10) if grouped else 1,
        topk_group=fields.integer("topk_group", 1, high=1 << 10) if grouped else 1,
        scoring_func=routing[0],
        topk_method=routing[1],
        norm_topk_prob=fields.flag("norm_topk_prob", routing[0] == "sigmoid"),
        routed_scaling_factor=fields.number("routed_scaling_factor", 1.0),
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6, high=1.0),
        max_position_embeddings=fields.integer("max_position_embeddings"),
        num_nextn_predict_layers=fields.integer("num_nextn_predict_layers", 0, low=0, high=64),
        rope=_rope(fields, origin),
        fp8_block=_fp8_block(fields, origin),
        eos_token_ids=fields.token_ids("eos_token_id", vocabulary),
    )
    _check_together(config, origin)
    return config


def _check_together(config: ModelConfig, origin: str) -> None:
    """Refuses sizes that are possible one by one, but not together."""
    group_size, rest = divmod(config.n_routed_experts, config.n_group)
    if rest or (config.topk_method == "noaux_tc" and group_size < 2):
        raise CheckpointError(
            f"{origin}: n_group = {config.n_group} must split n_routed_experts = {config.n_routed_experts} "
            "into equal groups, of two or more for noaux_tc"
        )
    if config.topk_group > config.n_group:
        raise CheckpointError(f"{origin}: topk_group = {config.topk_group} is above n_group = {config.n_group}")
    if config.num_experts_per_tok > config.topk_group * group_size:
        raise CheckpointError(
            f"{origin}: num_experts_per_tok = {config.num_experts_per_tok} is above the "
            f"{config.topk_group * group_size} experts in topk_group = {config.topk_group} groups"
        )
    if config.scoring_func == "softmax" and config.norm_topk_prob and config.routed_scaling_factor != 1.0:
        raise UnsupportedModel(
            f"{origin}: norm_topk_prob with routed_scaling_factor = {config.routed_scaling_factor} is not supported "
            "with softmax scores: DeepSeek's code scales then only what it does not normalise"
        )
    if config.qk_rope_head_dim % 2:
        raise CheckpointError(f"{origin}: qk_rope_head_dim = {config.qk_rope_head_dim} must be even")
    if config.first_k_dense_replace > config.num_hidden_layers:
        raise CheckpointError(
            f"{origin}: first_k_dense_replace = {config.first_k_dense_replace} is above "
            f"num_hidden_layers = {config.num_hidden_layers}"
        )


def _fp8_block(fields: Fields, origin: str) -> tuple[int, int] | None:
    """What `quantization_config` says of float8 weights; INT8 ones tell all by their own tensors."""
    section = fields.section("quantization_config")
    if section is None:
        return None
    method = section.text("quant_method", "")
    if method == INT8_METHOD:
        return None
    if method != "fp8":
        raise UnsupportedModel(
            f"{origin}: quantization_config: quant_method = {method!r} is not supported, only 'fp8' and {INT8_METHOD!r}"
        )
    section.expect("fmt", "e4m3")
    rows, columns = section.pair("weight_block_size")
    return rows, columns


def _rope(fields: Fields, origin: str) -> Rope:
    dim = fields.integer("qk_rope_head_dim", low=2, high=1 << 12)
    parameters = fields.section("rope_parameters")
    scaling = parameters or fields.section("rope_scaling")
    theta = (parameters or fields).number("rope_theta", 10_000.0, low=1.1, high=1e12)
    if scaling is None:
        return Rope(dim, theta)
    kind = scaling.text("rope_type", scaling.text("type", "default"))
    if kind == "default":
        return Rope(dim, theta)
    if kind != "yarn":
        raise UnsupportedModel(f"{origin}: rope type {kind!r} is not supported, only 'default' and 'yarn'")
    scaling.expect("truncate", True)
    scaling.expect("attention_factor", None)
    return Rope(
        dim,
        theta,
        Yarn(
            factor=scaling.number("factor", low=1.0),
            original_max_position_embeddings=scaling.integer("original_max_position_embeddings"),
            beta_fast=scaling.number("beta_fast", 32.0, low=1e-6),
            beta_slow=scaling.number("beta_slow", 1.0, low=1e-6),
            mscale=scaling.number("mscale", 1.0),
            mscale_all_dim=scaling.number("mscale_all_dim", 0.0),
        ),
    )
