"""The small functions that layers share, written for few and small NumPy calls: a decode step is made of hundreds."""

from __future__ import annotations

import numpy as np

from flowserve.model.arrays import FloatArray
from flowserve.model.compiled import native


def rms_norm(x: FloatArray, weight: FloatArray, eps: float) -> FloatArray:
    """x / sqrt(mean(x²) + eps) · weight over the last axis of f32[T, N], which is contiguous."""
    if native is not None:
        normed = np.empty(x.shape, np.float32)
        native.norm(x, weight, eps, normed)
        return normed
    power: FloatArray = np.vecdot(x, x)
    power *= 1.0 / x.shape[-1]
    power += eps
    np.sqrt(power, out=power)
    y = x / power[:, None]
    y *= weight
    return y


def sigmoid(x: FloatArray) -> FloatArray:
    """1 / (1 + exp(-x)), to full relative precision where it is small; below -80, where exp overflows, as at -80."""
    y = np.maximum(x, np.float32(-80.0))
    np.negative(y, out=y)
    np.exp(y, out=y)
    y += 1.0
    return np.reciprocal(y, out=y)


def gated(gate_up: FloatArray) -> FloatArray:
    """SwiGLU's inner product, silu(gate) · up, of f32[T, 2 F] that holds gate and up side by side: f32[T, F]."""
    inner = gate_up.shape[-1] // 2
    half = gate_up[..., :inner] * 0.5  # silu(x) = x/2 + x/2 · tanh(x/2)
    y: FloatArray = np.tanh(half)
    y += 1.0
    y *= half
    y *= gate_up[..., inner:]
    return y


def softmax_inplace(scores: FloatArray) -> None:
    """Turns scores into probabilities over the last axis. A score of -inf gets none; not all may be -inf."""
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
