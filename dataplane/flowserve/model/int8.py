"""INT8 products: activations quantised token by token, weights channel by channel, sums exact.

NumPy has no fast product of bytes, but float32 is an exact arithmetic of integers below 2^24: 127 · 127 · EXACT_INNER
stays below it. So weights stay bytes in memory, and are widened panel by panel into a scratch small enough for the
cache, where the kernels of `linear.py` multiply them; longer sums are cut into pieces whose results are added in
float64, which is exact to 2^53. A row's result does not depend on the rows beside it, bit for bit, as with float32.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flowserve.model.arrays import FloatArray
from flowserve.model.linear import fill, multiply, panels_of

Bytes = npt.NDArray[np.int8]
LARGEST = 127
EXACT_INNER = 2**24 // LARGEST**2 - 16  # 1024
SCRATCH = 1 << 16  # weights widened at once: 256 KiB of float32


def quantise_rows(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Integers f32[T, K] in -127..127 and scales f32[T, 1] whose product is about x f32[T, K]."""
    scales = np.maximum(x.max(axis=1, keepdims=True), -x.min(axis=1, keepdims=True))
    scales *= 1.0 / LARGEST
    scales += np.float32(1e-30)  # a row of zeros stays zero
    integers = x / scales
    return np.rint(integers, out=integers), scales


def integer_product(x: FloatArray, panels: Bytes, out: FloatArray) -> None:
    """x f32[T, K] of integers times panels i8[P, K, w] -> out f32[P, T, w], exact below 2^24 and else rounded once."""
    count, inner, width = panels.shape
    if inner > EXACT_INNER:
        total = np.zeros(out.shape, np.float64)
        part = np.empty(out.shape, np.float32)
        for first in range(0, inner, EXACT_INNER):
            piece = slice(first, first + EXACT_INNER)
            integer_product(x[:, piece], panels[:, piece], part)
            total += part
        out[...] = total
        return
    at_once = max(SCRATCH // (inner * width), 1)
    scratch = np.empty((min(at_once, count), inner, width), np.float32)
    for first in range(0, count, at_once):
        some = panels[first : first + at_once]
        wide = scratch[: len(some)]
        np.copyto(wide, some)
        multiply(x[None], wide, out[first : first + at_once])


class Int8Linear:
    """A projection of quantised weights i8[out, in], whose rows have scales f32[out]."""

    def __init__(self, weight: Bytes, scales: FloatArray) -> None:
        self.panels = panels_of(weight)
        count, _, width = self.panels.shape
        self.scales = np.zeros(count * width, np.float32)
        self.scales[: len(scales)] = scales
        self._outputs = len(scales)

    def __call__(self, x: FloatArray) -> FloatArray:
        """f32[T, in] -> f32[T, out], any T."""
        integers, scales = quantise_rows(fill(x))
        count, _, width = self.panels.shape
        y = np.empty((len(integers), count, width), np.float32)
        integer_product(integers, self.panels, y.swapaxes(0, 1))
        flat = y.reshape(len(integers), count * width)
        flat *= self.scales
        flat *= scales
        return flat[: len(x), : self._outputs]
