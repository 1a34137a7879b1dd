"""The routers of DeepSeek-V3 and DeepSeek-V2: top-k experts, inside the best groups.

V3 (`noaux_tc`): affinities are sigmoids. Choosing uses affinity + correction bias (which keeps the load even), weighing
the affinity alone; a group is worth the sum of its two best. Source: arXiv:2412.19437, §2.1.2.
V2: affinities are a softmax over all experts, without bias; a group is worth its best expert (`group_limited_greedy`),
or there are no groups (`greedy`, V2-Lite). Source: arXiv:2405.04434, §2.2.
Either way the best `topk_group` groups stay, and in them the best K experts, whose gates are normalised over the K if
the model says so, and scaled.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flowserve.model.arrays import FloatArray, IntArray
from flowserve.model.compiled import native
from flowserve.model.config import ModelConfig
from flowserve.model.functional import sigmoid, softmax_inplace
from flowserve.model.int8 import Int8Linear
from flowserve.model.linear import Linear

ExpertNumbers = npt.NDArray[np.intp]


class Router:
    """Chooses experts for tokens. `weight` makes f32[T, E] of f32[T, H]; `bias` is f32[E], or None."""

    def __init__(self, weight: Linear | Int8Linear, bias: FloatArray | None, config: ModelConfig) -> None:
        self._weight = weight
        self._bias = bias
        self._softmax = config.scoring_func == "softmax"
        self._pairs = config.topk_method == "noaux_tc"
        self._groups = config.n_group
        self._kept_groups = config.topk_group
        self._kept = config.num_experts_per_tok
        self._normalised = config.norm_topk_prob
        self._scale = config.routed_scaling_factor

    def __call__(self, x: FloatArray) -> tuple[IntArray, FloatArray]:
        """Experts i32[T, K], distinct in a row but in no particular order, and gates f32[T, K] of tokens f32[T, H]."""
        affinity = np.ascontiguousarray(self._affinity(self._weight(x)))
        scores = affinity if self._bias is None else affinity + self._bias
        if native is None:
            experts = self._choose(scores).astype(np.int32)
            gates = affinity[np.arange(len(x))[:, None], experts]
        else:
            experts, gates = np.empty((len(x), self._kept), np.int32), np.empty((len(x), self._kept), np.float32)
            native.route(affinity, scores, self._groups, self._kept_groups, self._pairs, experts, gates)
        if self._normalised:
            gates /= gates.sum(axis=1, keepdims=True) + 1e-20
        gates *= self._scale
        return experts, gates

    def _affinity(self, logits: FloatArray) -> FloatArray:
        if not self._softmax:
            return sigmoid(logits)
        softmax_inplace(logits)
        return logits

    def _choose(self, scores: FloatArray) -> ExpertNumbers:
        """The experts with the highest scores, f32[T, E] -> int[T, K], inside the best groups."""
        if self._kept_groups == self._groups:
            return _best(scores, self._kept)
        tokens, experts = scores.shape
        rows = np.arange(tokens)[:, None]
        size = experts // self._groups
        grouped = scores.reshape(tokens, self._groups, size)
        groups = _best(self._worth(grouped), self._kept_groups)
        best = _best(grouped[rows, groups].reshape(tokens, self._kept_groups * size), self._kept)
        chosen: ExpertNumbers = groups[rows, best // size] * size + best % size
        return chosen

    def _worth(self, grouped: FloatArray) -> FloatArray:
        """What each group of f32[T, groups, size] is worth, f32[T, groups]."""
        if not self._pairs:
            return np.asarray(grouped.max(axis=2))
        size = grouped.shape[2]
        return np.asarray(np.partition(grouped, size - 2, axis=2)[:, :, size - 2 :].sum(axis=2))


def _best(scores: FloatArray, count: int) -> ExpertNumbers:
    """Where the `count` highest of each row are, f32[T, N] -> int[T, count], in no particular order."""
    return scores.argpartition(scores.shape[1] - count, axis=1)[:, -count:]
