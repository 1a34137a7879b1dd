"""Token-wise INT8, as dispatch fuses it: a token is its largest value's 127th part times whole numbers.

Bytes of a token shrink to a quarter (of f32); the error of a value is at most half a scale. A token of zeros has
scale 0. Infinities and NaN are the caller's affair: they give whatever NumPy gives.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from xccl.routing import Floats

_LARGEST: Final = np.float32(127)


def quantise(x: Floats) -> tuple[NDArray[np.int8], Floats]:
    """f32[T, H] → int8[T, H] and the scale of each token, f32[T]."""
    scales = np.abs(x).max(axis=1, initial=0) / _LARGEST
    scaled = x / np.where(scales == 0, np.float32(1), scales)[:, np.newaxis]
    return np.rint(scaled, out=scaled).astype(np.int8), scales


def dequantise(rows: NDArray[np.int8], scales: Floats, into: Floats) -> None:
    """int8[N, H] and f32[N] → f32[N, H]."""
    np.multiply(rows, scales[:, np.newaxis], out=into, dtype=np.float32)
