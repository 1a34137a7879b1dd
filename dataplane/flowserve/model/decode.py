"""Absorbed MLA for a decode batch: one new token for each of several sequences, over the latent cache alone.

A row's result does not depend on the other rows, bit for bit: see `linear.py` for the products with weights; and a
sequence's context is padded, with masked null blocks, to a multiple of CONTEXT_STEP tokens, whatever the others have.
Sequences padded to the same length share one batched product, which multiplies each of them alone.
What depends on the block tables only is prepared once for all layers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flowserve.cache import BlockPool, SequenceKV
from flowserve.model.arrays import FloatArray
from flowserve.model.attention import MlaWeights
from flowserve.model.functional import softmax_inplace
from flowserve.model.linear import multiply
from flowserve.model.rope import Rotations

CONTEXT_STEP = 128

Index = npt.NDArray[np.intp]


@dataclass(frozen=True)
class _Bucket:
    """Sequences whose padded contexts have the same length L of tokens."""

    rows: Index  # [n], places in the batch
    tables: Index  # [n, L / block_size], padded with the null block
    mask: FloatArray  # [n, 1, L], -inf on padding


class DecodeAttention:
    """An `Attention` over the last token of each of `sequences`, which was appended before."""

    def __init__(self, sequences: Sequence[SequenceKV], rotations: Rotations) -> None:
        """`sequences`: one or more, all of one pool. `rotations`: c64[rows, rope / 2], at least as many rows."""
        self._pool = sequences[0].pool
        self._live = len(sequences)
        self._rotations = rotations
        last = [(s.blocks[(s.length - 1) // s.pool.block_size], (s.length - 1) % s.pool.block_size) for s in sequences]
        self._slots: Index = np.array(last, dtype=np.intp).T
        self._buckets = _buckets(sequences, self._pool)

    def __call__(self, weights: MlaWeights, x: FloatArray) -> FloatArray:
        queries, latent = weights.project(x, self._rotations)
        blocks, offsets = self._slots
        cache = self._pool.data[weights.layer]
        cache[blocks, offsets] = latent[: self._live]
        context = self._attend(_absorb_keys(weights, queries), cache, weights.kv_rank)
        heads = np.empty((len(x), weights.heads, weights.v_up.shape[2]), np.float32)
        multiply(context.swapaxes(0, 1), weights.v_up, heads.swapaxes(0, 1))
        return weights.out(heads.reshape(len(x), -1))

    def _attend(self, queries: FloatArray, cache: FloatArray, kv_rank: int) -> FloatArray:
        """Queries f32[T, heads, width] -> mean compressed KV f32[T, heads, kv_rank], zero in rows that are not live."""
        context = np.zeros((*queries.shape[:2], kv_rank), np.float32)
        for bucket in self._buckets:
            latent = cache[bucket.tables].reshape(len(bucket.rows), -1, queries.shape[2])
            scores = queries[bucket.rows] @ latent.swapaxes(1, 2)
            scores += bucket.mask
            softmax_inplace(scores)
            context[bucket.rows] = scores @ latent[:, :, :kv_rank]
        return context


def _absorb_keys(weights: MlaWeights, queries: FloatArray) -> FloatArray:
    """Queries f32[T, heads, nope + rope] against expanded keys -> f32[T, heads, width] against latent rows."""
    rotary = queries[:, :, weights.nope :]
    absorbed = np.empty((*queries.shape[:2], weights.kv_rank + rotary.shape[2]), np.float32)
    multiply(
        queries[:, :, : weights.nope].swapaxes(0, 1),
        weights.k_up,
        absorbed[:, :, : weights.kv_rank].swapaxes(0, 1),
    )
    absorbed[:, :, weights.kv_rank :] = rotary
    return absorbed


def _buckets(sequences: Sequence[SequenceKV], pool: BlockPool) -> list[_Bucket]:
    step = max(CONTEXT_STEP // pool.block_size, 1)
    rows_of: defaultdict[int, list[int]] = defaultdict(list)
    for row, sequence in enumerate(sequences):
        used = pool.blocks_for(sequence.length)
        rows_of[-(-used // step) * step].append(row)
    return [_bucket(sequences, rows, blocks, pool) for blocks, rows in rows_of.items()]


def _bucket(sequences: Sequence[SequenceKV], rows: list[int], blocks: int, pool: BlockPool) -> _Bucket:
    tables = np.full((len(rows), blocks), pool.null_block, np.intp)
    mask = np.zeros((len(rows), 1, blocks * pool.block_size), np.float32)
    for place, row in enumerate(rows):
        sequence = sequences[row]
        used = pool.blocks_for(sequence.length)
        tables[place, :used] = sequence.blocks[:used]
        mask[place, 0, sequence.length :] = -np.inf
    return _Bucket(np.array(rows, np.intp), tables, mask)
