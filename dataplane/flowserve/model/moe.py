"""The router of DeepSeek-V3: group-limited top-k without auxiliary loss.

Affinities are sigmoids. Choosing uses affinity + correction bias (which keeps the load even); weighing uses the
affinity alone. Experts lie in groups; a group is worth the sum of its two best; the best `topk_group` groups stay, and
in them the best K experts. Gates are normalised over the K and scaled. Source: DeepSeek-V3, arXiv:2412.19437, §2.1.2.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flowserve.model.arrays import FloatArray, IntArray
from flowserve.model.config import ModelConfig
from flowserve.model.functional import sigmoid
from flowserve.model.linear import Linear

ExpertNumbers = npt.NDArray[np.intp]


class Router:
    """Chooses experts for tokens. `weight` makes f32[T, E] of f32[T, H]; `bias` is f32[E]."""

    def __init__(self, weight: Linear, bias: FloatArray, config: ModelConfig) -> None:
        self._weight = weight
        self._bias = bias
        self._groups = config.n_group
        self._kept_groups = config.topk_group
        self._kept = config.num_experts_per_tok
        self._normalised = config.norm_topk_prob
        self._scale = config.routed_scaling_factor

    def __call__(self, x: FloatArray) -> tuple[IntArray, FloatArray]:
        """Experts i32[T, K], distinct in a row but in no particular order, and gates f32[T, K] of tokens f32[T, H]."""
        affinity = sigmoid(self._weight(x))
        experts = self._choose(affinity + self._bias)
        gates = np.take_along_axis(affinity, experts, axis=1)
        if self._normalised:
            gates /= gates.sum(axis=1, keepdims=True) + 1e-20
        gates *= self._scale
        return experts.astype(np.int32), gates

    def _choose(self, scores: FloatArray) -> ExpertNumbers:
        """The experts with the highest scores, f32[T, E] -> int[T, K], inside the best groups."""
        tokens, experts = scores.shape
        rows = np.arange(tokens)[:, None]
        size = experts // self._groups
        grouped = scores.reshape(tokens, self._groups, size)
        worth = np.partition(grouped, size - 2, axis=2)[:, :, size - 2 :].sum(axis=2)
        groups = worth.argpartition(self._groups - self._kept_groups, axis=1)[:, -self._kept_groups :]
        candidates = grouped[rows, groups].reshape(tokens, self._kept_groups * size)
        best = candidates.argpartition(candidates.shape[1] - self._kept, axis=1)[:, -self._kept :]
        chosen: ExpertNumbers = groups[rows, best // size] * size + best % size
        return chosen
