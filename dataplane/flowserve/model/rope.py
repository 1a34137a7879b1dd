"""Rotary positions, plain or stretched by YaRN (Peng et al. 2023, arXiv:2309.00071), as DeepSeek uses them.

DeepSeek keeps each rotary pair in neighbouring places, so a pair is one complex number and the rotation is one complex
product. Attention only takes dot products of rotated vectors, for which the order of the pairs does not matter.

YaRN leaves the fast dimensions as they are, divides the frequency of the slow ones by `factor`, and blends linearly in
between; the softmax then gets sharper by the square of `0.1 * mscale_all_dim * ln(factor) + 1`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flowserve.model.arrays import FloatArray, IntArray

Rotations = npt.NDArray[np.complex64]


@dataclass(frozen=True)
class Yarn:
    """How far, and which dimensions, the trained context is stretched; names as in config.json."""

    factor: float
    original_max_position_embeddings: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float = 1.0
    mscale_all_dim: float = 0.0


@dataclass(frozen=True)
class Rope:
    """Rotary embedding over `dim` places (`dim / 2` pairs) with base `theta`."""

    dim: int
    theta: float
    yarn: Yarn | None = None

    def frequencies(self) -> FloatArray:
        """Radians per position, f32[dim / 2], fastest first."""
        plain = self.theta ** -(np.arange(0, self.dim, 2, dtype=np.float64) / self.dim)
        if self.yarn is None:
            return plain.astype(np.float32)
        low = max(math.floor(self._pair_turning(self.yarn.beta_fast)), 0)
        high = min(math.ceil(self._pair_turning(self.yarn.beta_slow)), self.dim - 1)
        ramp = (np.arange(self.dim // 2) - low) / max(high - low, 0.001)
        slow = np.clip(ramp, 0.0, 1.0)
        return (plain * (1.0 - slow) + plain / self.yarn.factor * slow).astype(np.float32)

    def magnitude(self) -> float:
        """What YaRN multiplies both rotated vectors by; 1 when `mscale` equals `mscale_all_dim`."""
        if self.yarn is None:
            return 1.0
        return _sharpening(self.yarn.factor, self.yarn.mscale) / _sharpening(self.yarn.factor, self.yarn.mscale_all_dim)

    def softmax_factor(self) -> float:
        """What YaRN multiplies the attention scores by."""
        if self.yarn is None:
            return 1.0
        return _sharpening(self.yarn.factor, self.yarn.mscale_all_dim) ** 2

    def _pair_turning(self, turns: float) -> float:
        """The (fractional) pair that makes `turns` full turns over the context the model was trained on."""
        assert self.yarn is not None
        span = self.yarn.original_max_position_embeddings / (turns * 2.0 * math.pi)
        return self.dim * math.log(span) / (2.0 * math.log(self.theta))


def _sharpening(factor: float, mscale: float) -> float:
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1.0 else 1.0


def rotations(frequencies: FloatArray, magnitude: float, positions: IntArray) -> Rotations:
    """The factors of each position, c64[T, dim / 2], for frequencies f32[dim / 2] and positions i32[T]."""
    angles = positions[:, None].astype(np.float32) * frequencies
    factors = np.empty(angles.shape, np.complex64)
    factors.real = np.cos(angles) * magnitude
    factors.imag = np.sin(angles) * magnitude
    return factors


def rotate(x: FloatArray, factors: Rotations) -> None:
    """Rotates f32[..., dim] in place, by factors that broadcast to c64[..., dim / 2]; its last axis is contiguous."""
    pairs: Rotations = x.view(np.complex64)
    pairs *= factors
