"""Which row goes to which rank, and how the results come together again. Pure NumPy, no per-token loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Integers: TypeAlias = NDArray[np.integer[Any]]

Block: TypeAlias = tuple[slice, NDArray[np.intp], list[tuple[int, int, slice]]]
"""Some tokens; the pair (counted from the first of them) of each of their rows, sorted as in the whole; and for each
rank that has some of these rows: the rank, how many of its rows come before, and where these lie among the block's."""


@dataclass(frozen=True)
class Route:
    """The (token, expert) pairs of one dispatch, sorted by target rank, within a rank in (token, k) order.

    order: intp[T*K], the pair (numbered t*K + k) of each sorted row; tokens: intp[T*K], the row of x it comes from;
    experts: int32[T*K], in sorted order; offsets, counts: first row and number of rows for each rank.
    """

    order: NDArray[np.intp]
    tokens: NDArray[np.intp]
    experts: NDArray[np.int32]
    offsets: tuple[int, ...]
    counts: tuple[int, ...]

    def where(self, at: Sequence[int], row_bytes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each pair (t, k): its rank, and the offset of its row if those of rank r lie one by one from at[r] on."""
        which = np.empty(self.order.size, np.int64)
        offsets = np.empty(self.order.size, np.int64)
        counts = np.array(self.counts)
        which[self.order] = np.repeat(np.arange(counts.size), counts)
        first = np.array(at) - np.array(self.offsets) * row_bytes
        offsets[self.order] = np.repeat(first, counts) + np.arange(self.order.size) * row_bytes
        return which, offsets

    def blocks(self, top_k: int, rows: int) -> Iterator[Block]:
        """The pairs in blocks of whole tokens with at most `rows` pairs, but at least one token."""
        step = max(1, rows // max(top_k, 1))
        for first in range(0, self.order.size // max(top_k, 1), step):
            last = min(first + step, self.order.size // top_k)
            pieces, orders, filled = [], [], 0
            for target, (offset, count) in enumerate(zip(self.offsets, self.counts, strict=True)):
                mine = self.tokens[offset : offset + count]
                begin, end = np.searchsorted(mine, (first, last)).tolist()
                if begin < end:
                    orders.append(self.order[offset + begin : offset + end] - first * top_k)
                    pieces.append((target, begin, slice(filled, filled := filled + end - begin)))
            yield slice(first, last), np.concatenate(orders), pieces


def check_array(name: str, array: NDArray[Any], dtype: type[np.generic], shape: tuple[int, ...]) -> None:
    """Raise ValueError unless `array` is C-contiguous, of that type and shape."""
    if array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous:
        raise ValueError(f"{name} must be a C-contiguous {dtype.__name__}{shape}, is {array.dtype}{array.shape}")


def route(expert_ids: Integers, owner: Integers, ranks: int) -> Route:
    """Sort pairs by the rank that owns their expert.

    expert_ids: int[T, K]; owner: int[E], the rank of each expert. Raises ValueError for an unknown expert or rank.
    """
    flat = expert_ids.astype(np.int32, copy=False).reshape(-1)
    if flat.size and int(flat.view(np.uint32).max()) >= owner.shape[0]:
        raise ValueError(f"expert ids must lie between 0 and {owner.shape[0] - 1}, found {flat.min()}..{flat.max()}")
    targets = owner[flat]
    counts = np.bincount(targets, minlength=ranks)
    if counts.shape[0] > ranks:
        raise ValueError(f"owner names rank {counts.shape[0] - 1}, the group has {ranks}")
    order = np.argsort(targets, kind="stable")
    offsets = np.cumsum(counts) - counts
    tokens = order // max(expert_ids.shape[1], 1)
    return Route(order, tokens, flat[order], tuple(offsets.tolist()), tuple(counts.tolist()))


def weighted_sum(rows: Floats, order: NDArray[np.intp], weights: Floats) -> Floats:
    """Sum each token's K results with its weights, in float32 and in the order of k.

    rows: f32[T*K, H], sorted as `order` says; weights: f32[T, K]. Returns f32[T, H].
    """
    tokens, top_k = weights.shape
    pairs = np.empty_like(rows)
    pairs[order] = rows
    grouped = pairs.reshape(tokens, top_k, rows.shape[1])
    grouped *= weights[:, :, np.newaxis]
    total: Floats = grouped.sum(axis=1)
    return total
