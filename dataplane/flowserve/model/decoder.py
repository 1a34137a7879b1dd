"""One decoder layer: attention, then a dense MLP or a mixture of experts, each on the normalised residual stream."""

from __future__ import annotations

import numpy as np

from flowserve.model.arrays import FloatArray, Index
from flowserve.model.attention import Attention, MlaWeights
from flowserve.model.config import ModelConfig
from flowserve.model.experts import Experts
from flowserve.model.functional import gated, rms_norm
from flowserve.model.int8 import pack_experts, packed_swiglu
from flowserve.model.linear import fill
from flowserve.model.moe import Router
from flowserve.model.rope import Rotations
from flowserve.model.weights import Weights, layer_name
from xccl import Steps


def idle_layer(config: ModelConfig, layer: int, experts: Experts) -> Steps[None]:
    """Takes part in the collective of a layer with experts, and computes nothing."""
    k = config.num_experts_per_tok
    x = np.empty((0, config.hidden_size), np.float32)
    yield from experts(layer, x, np.empty((0, k), np.int32), np.empty((0, k), np.float32))


class Mlp:
    """SwiGLU: down(silu(gate(x)) · up(x)), with gate and up fused."""

    def __init__(self, weights: Weights, module: str) -> None:
        self._gate_up = weights.linear(f"{module}.gate_proj", f"{module}.up_proj")
        self._down = weights.linear(f"{module}.down_proj")
        self._packed = pack_experts([self._gate_up], [self._down])

    def __call__(self, x: FloatArray) -> FloatArray:
        if self._packed is not None:
            return packed_swiglu(x, np.zeros(len(x), np.intp), self._packed)
        return self._down(gated(self._gate_up(x)))


class MixtureOfExperts:
    """A shared expert for every token, plus the routed ones that the router chooses."""

    def __init__(self, weights: Weights, layer: int) -> None:
        module = f"{layer_name(layer)}.mlp"
        biased = weights.config.topk_method == "noaux_tc"
        bias = weights.vector(f"{module}.gate.e_score_correction_bias") if biased else None
        self._layer = layer
        self._router = Router(weights.linear(f"{module}.gate"), bias, weights.config)
        self._shared = Mlp(weights, f"{module}.shared_experts")

    def __call__(self, x: FloatArray, experts: Experts, live: int) -> Steps[FloatArray]:
        """f32[T, H] -> f32[T, H]. Only the first `live` rows are sent: padding takes up no expert's time."""
        ids, gates = self._router(x)
        routed = yield from experts(self._layer, x[:live], ids[:live], gates[:live])
        y = self._shared(x)
        y[:live] += routed
        return y


class DecoderLayer:
    """Layer number `layer` of the checkpoint: one of the main model's, or an MTP layer's, which come after them."""

    def __init__(self, weights: Weights, layer: int) -> None:
        name = layer_name(layer)
        self._eps = weights.config.rms_norm_eps
        self._input_norm = weights.vector(f"{name}.input_layernorm.weight")
        self._mla = MlaWeights(weights, layer)
        self._mlp_norm = weights.vector(f"{name}.post_attention_layernorm.weight")
        self._mlp: Mlp | MixtureOfExperts
        if layer >= weights.config.first_k_dense_replace:
            self._mlp = MixtureOfExperts(weights, layer)
        else:
            self._mlp = Mlp(weights, f"{name}.mlp")

    def latent(self, x: FloatArray, rotations: Rotations) -> FloatArray:
        """The latent rows f32[T, kv_rank + rope] that tokens of the residual stream f32[T, H] leave in the cache."""
        return self._mla.latent(rms_norm(x, self._input_norm, self._eps), rotations)

    def forward(
        self, x: FloatArray, attention: Attention, experts: Experts, live: int, wanted: Index | None = None
    ) -> Steps[FloatArray]:
        """The residual stream f32[T, H] after this layer; rows from `live` on are padding.

        With `wanted`, only of those rows, int[n]: the others are there to be attended to. It comes back filled.
        """
        x = x + attention(self._mla, rms_norm(x, self._input_norm, self._eps))
        if wanted is not None and len(wanted) < live:
            x, live = fill(x[wanted]), len(wanted)
        normed = rms_norm(x, self._mlp_norm, self._eps)
        if isinstance(self._mlp, Mlp):
            x += self._mlp(normed)
        else:
            x += yield from self._mlp(normed, experts, live)
        return x
