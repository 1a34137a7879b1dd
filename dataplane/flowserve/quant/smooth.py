"""SmoothQuant: moves the outliers of activations into the weights, where each channel has room for them.

Input channel j of some projections is divided by s[j] and their weights' column j multiplied by it, which changes
nothing but what has to be rounded: s[j] = max|x[j]|^a / max|w[:, j]|^(1 - a). The division costs nothing, since
whatever makes the input does it: a norm's weight, or the rows of the projection before. The strength a is the one of
MIGRATIONS, or no smoothing at all, with which some of the calibration's rows come out best: inputs without outliers
are better left alone. Source: Xiao et al. 2022, arXiv:2211.10438, §4.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowserve.model.arrays import FloatArray
from flowserve.model.int8 import LARGEST, quantise_rows

MIGRATIONS = (0.25, 0.5, 0.75)
_LEAST = 1e-5


def smoothing(rows: FloatArray, largest_input: FloatArray, weights: Sequence[FloatArray]) -> FloatArray:
    """s f32[in] for the weights f32[out, in] of projections with the same input.

    `rows` f32[n, in] are examples of it, `largest_input` f32[in] its largest absolute values.
    """
    largest_weight = np.max([np.abs(weight).max(axis=0) for weight in weights], axis=0)
    inputs, outputs = np.maximum(largest_input, _LEAST), np.maximum(largest_weight, _LEAST)
    candidates = [np.ones_like(inputs), *(inputs**a / outputs ** (1.0 - a) for a in MIGRATIONS)]
    best: FloatArray = min(candidates, key=lambda factors: _error(rows, weights, factors))
    return best


def _error(rows: FloatArray, weights: Sequence[FloatArray], factors: FloatArray) -> float:
    """The squared error that plain rounding of rows and weights leaves in the projections' outputs."""
    integers, scales = quantise_rows(rows / factors)
    rounded = integers * scales
    total = 0.0
    for weight in weights:
        wide = weight * factors
        steps = np.maximum(np.abs(wide).max(axis=1, keepdims=True), 1e-30) / LARGEST
        total += float(np.square(rounded @ (np.rint(wide / steps) * steps).T - rows @ weight.T).sum())
    return total
