"""Naive MLA for a chunk of one sequence: the chunk's tokens attend to all that came before them and to themselves.

One head after another: its keys and values are expanded, and its queries go in tiles, each against only the keys that
it may see. So what is held at once is context × (key + value) + QUERY_TILE × context floats, whatever the number of
heads and the chunk's length, and stays in the processor's cache for a while.
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
        context = self._sequence.read(weights.layer)
        heads = np.empty((len(x), weights.heads, weights.v_up.shape[-1]), np.float32)
        for head in range(weights.heads):
            self._attend(queries[:, head], *_expand(weights, context, head), heads[:, head])
        return weights.out(heads.reshape(len(x), -1))

    def _attend(self, queries: FloatArray, keys: FloatArray, values: FloatArray, out: FloatArray) -> None:
        """One head's f32[T, v] into `out`, of queries f32[T, d], keys f32[L, d] and values f32[L, v]."""
        for first in range(0, len(queries), QUERY_TILE):
            tile = slice(first, min(first + QUERY_TILE, len(queries)))
            seen, own = self._start + tile.stop, tile.stop - tile.start
            scores = queries[tile] @ keys[:seen].T
            scores[:, seen - own :] += _FUTURE[:own, :own]
            softmax_inplace(scores)
            out[tile] = scores @ values[:seen]


def _expand(weights: MlaWeights, latent: FloatArray, head: int) -> tuple[FloatArray, FloatArray]:
    """One head's keys f32[L, nope + rope] and values f32[L, v] of latent rows f32[L, width]."""
    compressed, rotary = latent[:, : weights.kv_rank], latent[:, weights.kv_rank :]
    keys = np.empty((len(latent), weights.nope + rotary.shape[1]), np.float32)
    np.matmul(compressed, weights.k_up[head].T, out=keys[:, : weights.nope])
    keys[:, weights.nope :] = rotary
    return keys, compressed @ weights.v_up[head]


# -inf where a key comes after its query, else 0, among the keys of a tile's own tokens: it sees all before them.
_FUTURE = np.triu(np.full((QUERY_TILE, QUERY_TILE), -np.inf, np.float32), k=1)
