"""Naive MLA for a chunk of one sequence: the chunk's tokens attend to all that came before them and to themselves.

Keys and values of every head are expanded once a layer. Queries go in tiles, each against only the keys that it may
see, so that the scores take at most heads × QUERY_TILE × context floats, whatever the chunk's length.
"""

from __future__ import annotations

import numpy as np

from flowserve.cache import SequenceKV
from flowserve.model.arrays import FloatArray
from flowserve.model.attention import MlaWeights
from flowserve.model.functional import softmax_inplace
from flowserve.model.rope import Rotations

QUERY_TILE = 64


class PrefillAttention:
    """An `Attention` over the last `len(rotations)` tokens of `sequence`, which were appended before."""

    def __init__(self, sequence: SequenceKV, rotations: Rotations) -> None:
        self._sequence = sequence
        self._rotations = rotations
        self._start = sequence.length - len(rotations)
        self._slots = sequence.slots(self._start, len(rotations))

    def __call__(self, weights: MlaWeights, x: FloatArray) -> FloatArray:
        queries, latent = weights.project(x, self._rotations)
        self._sequence.pool.store(weights.layer, *self._slots, latent)
        keys, values = _expand(weights, self._sequence.read(weights.layer))
        heads = np.empty((len(x), weights.heads, values.shape[-1]), np.float32)
        for first in range(0, len(x), QUERY_TILE):
            tile = slice(first, min(first + QUERY_TILE, len(x)))
            seen = self._start + tile.stop
            scores = queries[tile].swapaxes(0, 1) @ keys[:, :seen].swapaxes(1, 2)
            scores += _future(tile.stop - tile.start, seen)
            softmax_inplace(scores)
            heads[tile] = (scores @ values[:, :seen]).swapaxes(0, 1)
        return weights.out(heads.reshape(len(x), -1))


def _expand(weights: MlaWeights, latent: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Keys f32[heads, L, nope + rope] and values f32[heads, L, v] of latent rows f32[L, width]."""
    compressed, rotary = latent[:, : weights.kv_rank], latent[:, weights.kv_rank :]
    keys = np.empty((weights.heads, len(latent), weights.nope + rotary.shape[1]), np.float32)
    np.matmul(compressed, weights.k_up.swapaxes(1, 2), out=keys[:, :, : weights.nope])
    keys[:, :, weights.nope :] = rotary
    return keys, compressed @ weights.v_up


def _future(queries: int, keys: int) -> FloatArray:
    """f32[queries, keys]: -inf where a key comes after its query, else 0. The last query sees the last key."""
    return np.triu(np.full((queries, keys), -np.inf, np.float32), k=keys - queries + 1)
