"""INT8 products: activations quantised token by token, weights channel by channel, sums exact.

There are two ways to the same numbers, bit for bit, whatever rows are in a batch:
* `PackedInt8`, compiled (`native/int8.c`), where the processor has an instruction for sums of products of bytes: a step
  reads a quarter of float32's bytes, and takes a half to a quarter of its time;
* `PanelInt8` in NumPy, which has no fast product of bytes. But float32 is an exact arithmetic of integers below 2^24,
  and 127 · 127 · EXACT_INNER stays below it. So weights stay bytes in memory, and are widened panel by panel into a
  scratch small enough for the cache, where the kernels of `linear.py` multiply them; longer sums are cut into pieces
  whose results are added in float64, which is exact to 2^53.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from flowserve.model.arrays import FloatArray, Index
from flowserve.model.compiled import native_bytes
from flowserve.model.linear import fill, multiply, panels_of

COMPILED = native_bytes is not None
Bytes = npt.NDArray[np.int8]
Codes = npt.NDArray[Any]  # quantised activations: f32 of integers, or bytes 128 higher
LARGEST = 127
EXACT_INNER = 2**24 // LARGEST**2 - 16  # 1024
_LANES, _COLUMNS = 16, 32  # of native/int8.c
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


class Int8Linear(ABC):
    """A projection of quantised weights i8[out, in], whose rows have scales f32[out]."""

    outputs: int
    width: int  # of what `multiply` writes: at least `outputs`
    nbytes: int  # what it keeps in memory

    def __call__(self, x: FloatArray) -> FloatArray:
        """f32[T, in] -> f32[T, out], any T."""
        codes, scales = self.quantise(x)
        y = np.empty((len(codes), self.width), np.float32)
        self.multiply(codes, scales, y)
        return y[: len(x), : self.outputs]

    @property
    @abstractmethod
    def tensors(self) -> tuple[npt.NDArray[Any], ...]:
        """All that is kept of the weight, scales too: what another process needs to have the same projection."""

    @abstractmethod
    def like(self, tensors: Sequence[npt.NDArray[Any]]) -> Self:
        """A projection of the same shape and form, with these `tensors`."""

    @abstractmethod
    def quantise(self, x: FloatArray) -> tuple[Codes, FloatArray]:
        """What `multiply` takes of f32[T, in], row by row; there may be more rows than T."""

    @abstractmethod
    def multiply(self, codes: Codes, scales: FloatArray, out: FloatArray) -> None:
        """Writes the products of quantised rows into contiguous rows f32[T, width]."""


class PanelInt8(Int8Linear):
    """The interpreted way."""

    def __init__(self, weight: Bytes, scales: FloatArray) -> None:
        self.outputs = len(scales)
        self._panels = panels_of(weight)
        count, _, width = self._panels.shape
        self.width = count * width
        self._scales = np.zeros(self.width, np.float32)
        self._scales[: self.outputs] = scales
        self.nbytes = self._panels.nbytes + self._scales.nbytes

    @property
    def tensors(self) -> tuple[npt.NDArray[Any], ...]:
        return self._panels, self._scales

    def like(self, tensors: Sequence[npt.NDArray[Any]]) -> Self:
        other = copy(self)
        other._panels, other._scales = tensors
        return other

    def quantise(self, x: FloatArray) -> tuple[Codes, FloatArray]:
        return quantise_rows(fill(x))

    def multiply(self, codes: Codes, scales: FloatArray, out: FloatArray) -> None:
        count, _, width = self._panels.shape
        integer_product(codes, self._panels, out.reshape(len(out), count, width).swapaxes(0, 1))
        out *= self._scales
        out *= scales


class PackedInt8(Int8Linear):
    """The compiled way; `native/int8.c` says how the weight lies."""

    def __init__(self, weight: Bytes, scales: FloatArray) -> None:
        outer, inner = weight.shape
        self.outputs = self.width = outer
        self._inner = -(-inner // _LANES) * _LANES
        blocks = -(-outer // _COLUMNS)
        whole = np.zeros((blocks * _COLUMNS, self._inner), np.int8)
        whole[:outer, :inner] = weight
        grouped = whole.reshape(blocks, _COLUMNS, self._inner // 4, 4)
        self._weight = np.ascontiguousarray(grouped.swapaxes(1, 2))
        self._sums = weight.sum(axis=1, dtype=np.int32)
        self._scales = np.ascontiguousarray(scales, np.float32)
        self.nbytes = self._weight.nbytes + self._sums.nbytes + self._scales.nbytes

    @property
    def tensors(self) -> tuple[npt.NDArray[Any], ...]:
        return self._weight, self._sums, self._scales

    def like(self, tensors: Sequence[npt.NDArray[Any]]) -> Self:
        other = copy(self)
        other._weight, other._sums, other._scales = tensors
        return other

    def quantise(self, x: FloatArray) -> tuple[Codes, FloatArray]:
        assert native_bytes is not None
        codes, scales = np.empty((len(x), self._inner), np.uint8), np.empty(len(x), np.float32)
        native_bytes.quantise(np.ascontiguousarray(x), codes, scales)
        return codes, scales

    def multiply(self, codes: Codes, scales: FloatArray, out: FloatArray) -> None:
        assert native_bytes is not None
        native_bytes.product(codes, scales, self._weight, self._sums, self._scales, out)


def rounded_linear(weight: FloatArray) -> Int8Linear:
    """A weight f32[out, in] rounded to the nearest, channel by channel, without calibration."""
    codes, scales = quantise_rows(weight)
    return int8_linear(codes.astype(np.int8), scales[:, 0])


def int8_linear(weight: Bytes, scales: FloatArray) -> Int8Linear:
    """The projection in the faster of the two ways that there is here."""
    return PackedInt8(weight, scales) if COMPILED else PanelInt8(weight, scales)


PackedExperts = tuple[tuple[npt.NDArray[Any], ...], ...]  # of each slot: what gate and up keep, then what down does


def pack_experts(gate_up: Sequence[object], down: Sequence[object]) -> PackedExperts | None:
    """What `packed_swiglu` takes, if the projections of all slots are `PackedInt8`; else None."""
    pairs = list(zip(gate_up, down, strict=True))
    packed = [(*a.tensors, *b.tensors) for a, b in pairs if isinstance(a, PackedInt8) and isinstance(b, PackedInt8)]
    return tuple(packed) if packed and len(packed) == len(pairs) else None


def packed_swiglu(x: FloatArray, slots: Index, experts: PackedExperts) -> FloatArray:
    """Row i · T / N of x f32[T, H] through the expert in `slots[i]`, int[N]: f32[N, H]. One call for all of them."""
    assert native_bytes is not None
    y = np.empty((len(slots), x.shape[1]), np.float32)
    native_bytes.swiglu(np.ascontiguousarray(x), slots, experts, y)
    return y
