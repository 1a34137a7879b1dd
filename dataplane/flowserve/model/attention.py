"""Multi-head Latent Attention: the weights of a layer, and what its two forms have in common.

A token leaves one latent row in the cache: its compressed KV (normalised), then one rotary key that all heads share.
* Naive form (prefill): expand the rows to keys and values of every head, then attend as usual. Least arithmetic when
  there are many queries for each key.
* Absorbed form (decode): move the expansion of the keys into the query and that of the values behind the softmax.
  Every head then attends to the same rows, which are never expanded: least memory traffic for one query a sequence.
Both are the same product, bracketed differently. Source: DeepSeek-V2, arXiv:2405.04434, §2.1 and appendix C.
"""

from __future__ import annotations

from typing import Protocol

from flowserve.model.arrays import FloatArray
from flowserve.model.functional import rms_norm
from flowserve.model.rope import Rotations, rotate
from flowserve.model.weights import Weights, layer_name


class MlaWeights:
    """The weights of one layer's attention. `q_b` carries the softmax scale; without q-LoRA it takes x itself."""

    def __init__(self, weights: Weights, layer: int) -> None:
        config = weights.config
        module = f"{layer_name(layer)}.self_attn"
        self.layer = layer
        self.eps = config.rms_norm_eps
        self.heads = config.num_attention_heads
        self.nope = config.qk_nope_head_dim
        self.q_rank = config.q_lora_rank
        self.kv_rank = config.kv_lora_rank
        low_rank = (f"{module}.q_a_proj",) if self.q_rank else ()
        self.a = weights.linear(*low_rank, f"{module}.kv_a_proj_with_mqa")
        self.q_norm = weights.vector(f"{module}.q_a_layernorm.weight") if self.q_rank else None
        self.kv_norm = weights.vector(f"{module}.kv_a_layernorm.weight")
        self.q_b = weights.linear(f"{module}.{'q_b_proj' if self.q_rank else 'q_proj'}", scale=config.softmax_scale)
        kv_b = weights.table(f"{module}.kv_b_proj").reshape(self.heads, -1, self.kv_rank)
        self.k_up = kv_b[:, : self.nope].copy()  # [heads, nope, kv_rank]
        self.v_up = kv_b[:, self.nope :].swapaxes(1, 2).copy()  # [heads, kv_rank, v]
        self.out = weights.linear(f"{module}.o_proj")

    def project(self, x: FloatArray, rotations: Rotations) -> tuple[FloatArray, FloatArray]:
        """Queries f32[T, heads, nope + rope] and latent rows f32[T, kv_rank + rope] of f32[T, H], both rotated."""
        low = self.a(x)
        compressed = x if self.q_norm is None else rms_norm(low[:, : self.q_rank], self.q_norm, self.eps)
        queries = self.q_b(compressed).reshape(len(x), self.heads, -1)
        rotate(queries[:, :, self.nope :], rotations[:, None])
        return queries, self._latent(low, rotations)

    def latent(self, x: FloatArray, rotations: Rotations) -> FloatArray:
        """The latent rows alone, for tokens that are attended to and do not attend themselves."""
        return self._latent(self.a(x), rotations)

    def _latent(self, low: FloatArray, rotations: Rotations) -> FloatArray:
        latent = low[:, self.q_rank :]
        latent[:, : self.kv_rank] = rms_norm(latent[:, : self.kv_rank], self.kv_norm, self.eps)
        rotate(latent[:, self.kv_rank :], rotations)
        return latent


class Attention(Protocol):
    """The attention of one forward pass: it knows the sequences, and writes the new tokens' latent rows first."""

    def __call__(self, weights: MlaWeights, x: FloatArray) -> FloatArray:
        """f32[T, H] -> f32[T, H]."""
        ...
