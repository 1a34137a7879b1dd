"""The parameters of a model: a flat dictionary by the names of the checkpoint, matrices as [out, in].

So exporting is writing them down. Two differences: the routed experts of a layer are stacked
(`mlp.experts.gate_up` [E, 2 F, H] and `mlp.experts.down` [E, H, F]), and the MTP layer's embedding and head are the
main model's. The routers' correction biases are no parameters: no gradient reaches them.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from shape import Shape

Params = dict[str, Array]
Sizes = dict[str, tuple[int, ...]]

EMBEDDING, FINAL_NORM, HEAD = "model.embed_tokens", "model.norm", "lm_head"


def layer_name(layer: int) -> str:
    return f"model.layers.{layer}"


def bias_name(layer: int) -> str:
    return f"{layer_name(layer)}.mlp.gate.e_score_correction_bias"


def matrix_sizes(shape: Shape) -> Sizes:
    """Everything that is multiplied by; the last axis is the one that is summed over."""
    heads, hidden, inner = shape.num_attention_heads, shape.hidden_size, shape.moe_intermediate_size
    query, key_value = shape.qk_nope_head_dim + shape.qk_rope_head_dim, shape.qk_nope_head_dim + shape.v_head_dim
    result = {f"{EMBEDDING}.weight": (shape.vocab_size, hidden), f"{HEAD}.weight": (shape.vocab_size, hidden)}
    for layer in shape.layers:
        name = layer_name(layer)
        result |= {
            f"{name}.self_attn.q_a_proj.weight": (shape.q_lora_rank, hidden),
            f"{name}.self_attn.q_b_proj.weight": (heads * query, shape.q_lora_rank),
            f"{name}.self_attn.kv_a_proj_with_mqa.weight": (shape.kv_lora_rank + shape.qk_rope_head_dim, hidden),
            f"{name}.self_attn.kv_b_proj.weight": (heads * key_value, shape.kv_lora_rank),
            f"{name}.self_attn.o_proj.weight": (hidden, heads * shape.v_head_dim),
        }
        if layer in shape.moe_layers:
            result |= {
                f"{name}.mlp.gate.weight": (shape.n_routed_experts, hidden),
                f"{name}.mlp.experts.gate_up": (shape.n_routed_experts, 2 * inner, hidden),
                f"{name}.mlp.experts.down": (shape.n_routed_experts, hidden, inner),
            }
            result |= _mlp_sizes(f"{name}.mlp.shared_experts", hidden, shape.n_shared_experts * inner)
        else:
            result |= _mlp_sizes(f"{name}.mlp", hidden, shape.intermediate_size)
    result[f"{layer_name(shape.num_hidden_layers)}.eh_proj.weight"] = (hidden, 2 * hidden)
    return result


def _mlp_sizes(module: str, hidden: int, inner: int) -> Sizes:
    return {
        f"{module}.gate_proj.weight": (inner, hidden),
        f"{module}.up_proj.weight": (inner, hidden),
        f"{module}.down_proj.weight": (hidden, inner),
    }


def norm_sizes(shape: Shape) -> Sizes:
    """The weight of every RMSNorm."""
    result: Sizes = {f"{FINAL_NORM}.weight": (shape.hidden_size,)}
    for layer in shape.layers:
        name = layer_name(layer)
        result[f"{name}.input_layernorm.weight"] = (shape.hidden_size,)
        result[f"{name}.post_attention_layernorm.weight"] = (shape.hidden_size,)
        result[f"{name}.self_attn.q_a_layernorm.weight"] = (shape.q_lora_rank,)
        result[f"{name}.self_attn.kv_a_layernorm.weight"] = (shape.kv_lora_rank,)
    for norm in ("enorm", "hnorm", "shared_head.norm"):
        result[f"{layer_name(shape.num_hidden_layers)}.{norm}.weight"] = (shape.hidden_size,)
    return result


def initial(shape: Shape, key: Array) -> Params:
    """Random weights scaled by 1 / sqrt(fan-in), those that add to the residual stream by 1 / sqrt(2 layers) more."""
    params = {name: jnp.ones(size, jnp.float32) for name, size in norm_sizes(shape).items()}
    depth = (2 * len(shape.layers)) ** -0.5
    for place, (name, size) in enumerate(matrix_sizes(shape).items()):
        scale = 1.0 if name.startswith(EMBEDDING) else size[-1] ** -0.5
        if "o_proj" in name or "down" in name:
            scale *= depth
        params[name] = jax.random.normal(jax.random.fold_in(key, place), size) * scale
    return params


def initial_biases(shape: Shape) -> Params:
    return {bias_name(layer): jnp.zeros(shape.n_routed_experts) for layer in shape.moe_layers}
