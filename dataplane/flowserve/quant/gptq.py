"""GPTQ: rounds a weight column by column, and lets the columns not yet rounded make up for each error.

With H = X^T X over the inputs X that a projection meets, the error that rounding column k leaves in X W^T is smallest
if the later columns move by -error / U[k, k] · U[k, k:], where U is the upper Cholesky factor of H^-1. A small multiple
of the mean diagonal is added to H, so that few samples do no harm. Source: Frantar et al. 2022, arXiv:2210.17323, §3.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flowserve.model.arrays import FloatArray
from flowserve.model.int8 import LARGEST, Bytes

Matrix = npt.NDArray[np.float64]
DAMPING = 0.01


def gptq(weight: Matrix, gram: Matrix) -> tuple[Bytes, FloatArray]:
    """Integers i8[out, in] and scales f32[out] for a weight f64[out, in] whose inputs have the Gram matrix [in, in]."""
    scales = np.maximum(np.abs(weight).max(axis=1), 1e-30) / LARGEST
    upper = _inverse_factor(gram)
    rest = weight.copy()
    codes = np.empty(weight.shape, np.int8)
    for column in range(weight.shape[1]):
        rounded = np.clip(np.rint(rest[:, column] / scales), -LARGEST, LARGEST)
        codes[:, column] = rounded
        error = (rest[:, column] - rounded * scales) / upper[column, column]
        rest[:, column + 1 :] -= error[:, None] * upper[column, column + 1 :]
    return codes, scales.astype(np.float32)


def _inverse_factor(gram: Matrix) -> Matrix:
    """U, upper triangular, with U^T U = H^-1."""
    damped = gram.copy()
    damped[np.diag_indices_from(damped)] += DAMPING * max(float(np.mean(np.diag(gram))), 1e-12)
    return np.asarray(np.linalg.cholesky(np.linalg.inv(damped)).T)
