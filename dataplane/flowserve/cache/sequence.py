"""The latent KV of one sequence: a block table and a length.

Writing has two steps: `append` makes room for new tokens and moves the length, all or nothing; then each layer fills
its rows. Undoing an iteration is `truncate` to the length before it. Blocks shared with a fork are copied when one of
the holders is about to write into them (copy on write).
`reserve` takes blocks in advance, so that a sequence that was admitted never fails to append later (a fork may: the
copies that it makes necessary are not part of the reservation).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flowserve.cache.pool import BlockPool

FloatArray = npt.NDArray[np.float32]
Slots = npt.NDArray[np.intp]


class SequenceKV:
    """Holds blocks of `pool` until `free` is called. `length` is in tokens."""

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self.length = 0
        self.blocks: list[int] = []
        self._reserved = 0

    def reserve(self, tokens: int) -> None:
        """Keeps room for `tokens` tokens in all. Raises OutOfBlocks, changing nothing."""
        wanted = self.pool.blocks_for(tokens)
        self.blocks += self.pool.allocate(max(wanted - len(self.blocks), 0))
        self._reserved = max(self._reserved, wanted)

    def append(self, tokens: int) -> None:
        """Makes the sequence `tokens` longer; the new rows are undefined until written.

        Raises OutOfBlocks, changing nothing.
        """
        pool = self.pool
        first, end = self.length // pool.block_size, pool.blocks_for(self.length + tokens)
        shared = [i for i in range(first, min(end, len(self.blocks))) if pool.is_shared(self.blocks[i])]
        fresh = pool.allocate(len(shared) + max(end - len(self.blocks), 0))
        for index in shared:
            original, copy = self.blocks[index], fresh.pop()
            pool.copy(original, copy)
            pool.release([original])
            self.blocks[index] = copy
        self.blocks += fresh
        self.length += tokens

    def adopt(self, blocks: list[int], length: int) -> None:
        """Begins an empty sequence with `length` tokens, which lie in blocks that somebody else holds too."""
        self.pool.share(blocks)
        self.blocks, self.length = list(blocks), length

    def truncate(self, length: int) -> None:
        """Forgets all tokens from `length` on; blocks beyond it are freed unless reserved."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot truncate a sequence of {self.length} tokens to {length}")
        keep = max(self.pool.blocks_for(length), self._reserved)
        self.pool.release(self.blocks[keep:])
        del self.blocks[keep:]
        self.length = length

    def fork(self) -> SequenceKV:
        """A second sequence with the same tokens, sharing their blocks, with nothing reserved."""
        other = SequenceKV(self.pool)
        other.adopt(self.blocks[: self.pool.blocks_for(self.length)], self.length)
        return other

    def free(self) -> None:
        """Gives all blocks back. The sequence is empty afterwards and may be used again."""
        self.pool.release(self.blocks)
        self.blocks = []
        self.length = self._reserved = 0

    def slots(self, start: int, count: int) -> tuple[Slots, Slots]:
        """Where tokens `start` to `start + count` lie: their blocks and their offsets in them, each int[count]."""
        positions = np.arange(start, start + count)
        table = np.array(self.blocks, dtype=np.intp)
        return table[positions // self.pool.block_size], positions % self.pool.block_size

    def read(self, layer: int) -> FloatArray:
        """A copy of the latent KV of all tokens in `layer`, f32[length, width]."""
        used = self.blocks[: self.pool.blocks_for(self.length)]
        return self.pool.fetch(layer, used).reshape(-1, self.pool.width)[: self.length]

    def export(self, out: FloatArray | None = None) -> FloatArray:
        """A contiguous copy, f32[layers, length, width], that another process can `load`; in `out` if that is given."""
        if out is None:
            out = np.empty((self.pool.layers, self.length, self.pool.width), np.float32)
        for layer, rows in enumerate(out):
            rows[:] = self.read(layer)
        return out

    def load(self, rows: FloatArray) -> None:
        """Appends the tokens of an exported f32[layers, n, width].

        Raises OutOfBlocks, or ValueError for a shape that is not the pool's; either changes nothing.
        """
        pool = self.pool
        if rows.ndim != 3 or (rows.shape[0], rows.shape[2]) != (pool.layers, pool.width):
            raise ValueError(f"KV of shape {rows.shape} does not fit a pool of {pool.layers} layers × {pool.width}")
        start = self.length
        self.append(rows.shape[1])
        blocks, offsets = self.slots(start, rows.shape[1])
        for layer, each in enumerate(rows):
            pool.store(layer, blocks, offsets, each)
