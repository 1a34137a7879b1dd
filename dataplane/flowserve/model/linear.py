"""Products of few rows with large weights: y = x W, with W kept in panels.

BLAS packs a large matrix anew in every call, which at the few rows of a decode step costs several times the product
itself. OpenBLAS skips packing below KERNEL_LIMIT multiply-adds. So W f32[K, N] is kept as panels f32[P, K, w], each
contiguous, and rows go through in tiles of at most ROWS: every product is a small one that streams its panel from
memory once and finds it in the cache for the next tile. Panels are the outer loop, tiles the inner one.

Two properties follow, and the tests hold them:
* a row's result is the same, bit for bit, whatever rows are beside it: each element is one sum over k in rising order,
  as long as a tile has two rows or more (one row alone takes another routine; an odd one costs as much as two);
* a decode batch may have any size without paying for the largest one.
The first holds where OpenBLAS has small-matrix kernels (x86-64 with AVX-512); elsewhere results of different batch
sizes may differ in the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from flowserve.model.arrays import FloatArray

Element = TypeVar("Element", np.float32, np.int8)
ROWS = 8
MAX_PANEL = 64
KERNEL_LIMIT = 1_000_000
_GRAIN = 16  # a panel's width is a multiple of one vector register


def padded(rows: int) -> int:
    """How many rows `rows` are computed as: an even number, and above a tile whole tiles."""
    return -(-rows // ROWS) * ROWS if rows > ROWS else rows + rows % 2


def fill(x: FloatArray) -> FloatArray:
    """f32[T, K] with rows of zeros behind it, so that there are as many as `padded` says; x itself if there are."""
    rows = padded(len(x))
    if rows == len(x):
        return x
    filled = np.zeros((rows, x.shape[1]), np.float32)
    filled[: len(x)] = x
    return filled


def panel_width(inner: int, outer: int) -> int:
    """Columns of a panel: as equal as possible, at most MAX_PANEL, and few enough for the small kernel."""
    most = max(min(MAX_PANEL, KERNEL_LIMIT // (ROWS * inner) // _GRAIN * _GRAIN), _GRAIN)
    share = -(-outer // -(-outer // most))
    return -(-share // _GRAIN) * _GRAIN


def panels_of(weight: npt.NDArray[Element]) -> npt.NDArray[Element]:
    """The panels [P, in, w] of a weight as checkpoints store it, [out, in]; columns beyond `out` are zero."""
    outer, inner = weight.shape
    width = panel_width(inner, outer)
    count = -(-outer // width)
    panels = np.zeros((count, inner, width), weight.dtype)
    whole = outer // width
    panels[:whole] = weight[: whole * width].reshape(whole, width, inner).swapaxes(1, 2)
    if whole < count:
        panels[whole, :, : outer - whole * width] = weight[whole * width :].T
    return panels


def multiply(x: FloatArray, panels: FloatArray, out: FloatArray) -> None:
    """Each panel's product, x f32[P or 1, T, K] · f32[P, K, w] -> out f32[P, T, w]; T as `padded` makes it.

    Any strides do, as long as rows are contiguous.
    """
    rows = x.shape[1]
    if rows > ROWS:
        tiles = rows // ROWS
        x = x.reshape(x.shape[0], tiles, ROWS, x.shape[2])
        out = out.reshape(out.shape[0], tiles, ROWS, out.shape[2])
        np.matmul(x, panels[:, None], out=out, order="C")
    else:
        np.matmul(x, panels, out=out)


class Linear:
    """A projection without bias, made of a weight as stored, f32[out, in]."""

    __slots__ = ("_outputs", "panels", "width")

    def __init__(self, weight: FloatArray) -> None:
        self.panels = panels_of(weight)
        self.width = self.panels.shape[0] * self.panels.shape[2]  # at least the outputs
        self._outputs = weight.shape[0]

    @property
    def nbytes(self) -> int:
        """What it keeps in memory."""
        return self.panels.nbytes

    @property
    def tensors(self) -> tuple[FloatArray, ...]:
        """All that is kept of the weight: what another process needs to have the same projection."""
        return (self.panels,)

    def like(self, tensors: Sequence[npt.NDArray[Any]]) -> Self:
        """A projection of the same shape and form, with these `tensors`."""
        other = copy(self)
        (other.panels,) = tensors
        return other

    def __call__(self, x: FloatArray) -> FloatArray:
        """f32[T, in] -> f32[T, out], any T; rows of the result may lie further apart than they are wide."""
        filled = fill(x)
        y = np.empty((len(filled), self.width), np.float32)
        self.multiply(filled, y)
        return y[: len(x), : self._outputs]

    def multiply(self, x: FloatArray, out: FloatArray) -> None:
        """Writes the products of rows f32[T, in], T as `padded` makes it, into contiguous rows f32[T, width]."""
        count, _, width = self.panels.shape
        multiply(x[None], self.panels, out.reshape(len(out), count, width).swapaxes(0, 1))
