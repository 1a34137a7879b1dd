"""Absorbed MLA for a decode batch: rows of one new token each, over the latent cache alone.

Several rows may be of one sequence, at positions one behind the other; each sees what is up to its own position.
A row's result does not depend on the other rows, bit for bit: see `linear.py` for the products with weights; and a
sequence's context is padded, with masked null blocks, to a length that depends on its own alone. Sequences padded to
the same length share one batched product, which multiplies each of them alone, in tiles of few tokens or columns.
What depends on the block tables only is prepared once for all layers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowserve.cache import BlockPool, SequenceKV
from flowserve.model.arrays import FloatArray, Index
from flowserve.model.attention import MlaWeights
from flowserve.model.functional import softmax_inplace
from flowserve.model.linear import MAX_PANEL, multiply
from flowserve.model.plan import DecodePlan
from flowserve.model.rope import Rotations

TILE_TOKENS = 64


@dataclass(frozen=True)
class _Bucket:
    """Rows whose padded contexts have the same length L of tokens."""

    rows: Index | slice  # [n], places in the batch
    tables: Index  # [n, L / block_size], padded with the null block
    mask: FloatArray  # [n, 1, L], -inf on padding
    tile: int  # tokens, a divisor of L


class DecodeAttention:
    """An `Attention` over rows that are at `positions` of `sequences`, to which they were appended before."""

    def __init__(
        self,
        sequences: Sequence[SequenceKV],
        positions: Sequence[int],
        rotations: Rotations,
        plan: DecodePlan | None = None,
    ) -> None:
        """`sequences`: of each row, one or more, all of one pool. `rotations`: c64[rows, rope / 2], or more rows.

        With a `plan`, it has as many rows as `rotations`; without one, buffers are made anew.
        """
        self._pool = sequences[0].pool
        self._live = len(sequences)
        self._rotations = rotations
        self._plan = plan
        size = self._pool.block_size
        slots = [(each.blocks[at // size], at % size) for each, at in zip(sequences, positions, strict=True)]
        self._slots: Index = np.array(slots, dtype=np.intp).T
        self._buckets = _buckets(sequences, positions, self._pool)

    def __call__(self, weights: MlaWeights, x: FloatArray) -> FloatArray:
        queries, latent = weights.project(x, self._rotations)
        blocks, offsets = self._slots
        self._pool.store(weights.layer, blocks, offsets, latent[: self._live])
        plan = self._plan or DecodePlan.of(
            len(x), weights.heads, weights.kv_rank, latent.shape[1] - weights.kv_rank, weights.v_up.shape[2]
        )
        _absorb_keys(weights, queries, plan.queries)
        self._attend(weights, plan)
        multiply(plan.context.swapaxes(0, 1), weights.v_up, plan.values.swapaxes(0, 1))
        return weights.out(plan.values.reshape(len(x), -1))

    def _attend(self, weights: MlaWeights, plan: DecodePlan) -> None:
        """The mean compressed KV that each query of the plan attends to; what lies in rows that are not live stays."""
        _, heads, width = plan.queries.shape
        for bucket in self._buckets:
            count, _, tokens = bucket.mask.shape
            latent = self._pool.fetch(weights.layer, bucket.tables).reshape(count, tokens, width)
            scores = np.empty((count, heads, tokens), np.float32)
            np.matmul(
                plan.queries[bucket.rows, None],
                latent.reshape(count, -1, bucket.tile, width).swapaxes(2, 3),
                out=scores.reshape(count, heads, -1, bucket.tile).swapaxes(1, 2),
            )
            scores += bucket.mask
            softmax_inplace(scores)
            plan.context[bucket.rows] = _mean(scores, latent[:, :, : weights.kv_rank])


def _mean(weights: FloatArray, rows: FloatArray) -> FloatArray:
    """f32[n, heads, L] @ f32[n, L, R] -> f32[n, heads, R], in panels of columns."""
    count, tokens, columns = rows.shape
    width = MAX_PANEL if columns % MAX_PANEL == 0 else columns
    panels = rows.reshape(count, tokens, -1, width).swapaxes(1, 2)
    mean = np.empty((count, weights.shape[1], columns), np.float32)
    np.matmul(weights[:, None], panels, out=mean.reshape(count, weights.shape[1], -1, width).swapaxes(1, 2))
    return mean


def _absorb_keys(weights: MlaWeights, queries: FloatArray, out: FloatArray) -> None:
    """Queries f32[T, heads, nope + rope] against expanded keys -> f32[T, heads, width] against latent rows."""
    nope, rank = weights.nope, weights.kv_rank
    multiply(queries[:, :, :nope].swapaxes(0, 1), weights.k_up, out[:, :, :rank].swapaxes(0, 1))
    out[:, :, rank:] = queries[:, :, nope:]


def _buckets(sequences: Sequence[SequenceKV], positions: Sequence[int], pool: BlockPool) -> list[_Bucket]:
    rows_of: defaultdict[int, list[int]] = defaultdict(list)
    for row, position in enumerate(positions):
        rows_of[_padded_blocks(pool.blocks_for(position + 1), pool.block_size)].append(row)
    return [_bucket(sequences, positions, rows, blocks, pool) for blocks, rows in rows_of.items()]


def _padded_blocks(blocks: int, block_size: int) -> int:
    """A multiple of a tile, at most an eighth more than needed: few lengths in a batch, and little padding."""
    unit = _unit(block_size)
    units = -(-blocks // unit)
    step = 1 << max(units.bit_length() - 4, 0)
    return -(-units // step) * step * unit


def _unit(block_size: int) -> int:
    """The blocks of a tile, or one if a block is larger."""
    return max(TILE_TOKENS // block_size, 1)


def _bucket(
    sequences: Sequence[SequenceKV], positions: Sequence[int], rows: list[int], blocks: int, pool: BlockPool
) -> _Bucket:
    tables = np.full((len(rows), blocks), pool.null_block, np.intp)
    mask = np.zeros((len(rows), 1, blocks * pool.block_size), np.float32)
    for place, row in enumerate(rows):
        seen = positions[row] + 1
        used = pool.blocks_for(seen)
        tables[place, :used] = sequences[row].blocks[:used]
        mask[place, 0, seen:] = -np.inf
    tile = TILE_TOKENS if pool.block_size % TILE_TOKENS == 0 else _unit(pool.block_size) * pool.block_size
    neighbours = rows[-1] - rows[0] == len(rows) - 1
    return _Bucket(slice(rows[0], rows[-1] + 1) if neighbours else np.array(rows, np.intp), tables, mask, tile)
