"""A fixed pool of KV blocks, shared by reference count.

One block holds the latent KV of `block_size` tokens in every layer, so that a sequence needs one block table for the
whole model. Invariants:
* a block is either free or has as many references as there are holders;
* a block is zeroed when it is handed out: nobody reads what an earlier holder wrote, and positions that nobody has
  written yet are finite, which attention relies on when it masks them;
* `null_block` is no part of the capacity, never handed out and always zero: block tables are padded with it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.float32]
Index = npt.NDArray[np.intp]


class OutOfBlocks(Exception):
    """The pool has fewer free blocks than asked for. Nothing was taken."""


class BlockPool:
    """Rows are f32[width], kept as they are in `data` f32[layers, num_blocks + 1, block_size, width].

    The memory's pages are touched as blocks are first used. Whatever reads or writes rows does so by `store` and
    `fetch`, so that a pool may keep them in another form.
    """

    def __init__(self, num_blocks: int, block_size: int, layers: int, width: int) -> None:
        if min(num_blocks, block_size, layers, width) < 1:
            raise ValueError(f"a pool of {num_blocks} blocks of {block_size} × {layers} × {width} makes no sense")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.layers = layers
        self.width = width
        self.null_block = num_blocks
        self._make_storage()
        self._references = [0] * num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))

    @property
    def free_blocks(self) -> int:
        return len(self._free)

    @property
    def usage(self) -> float:
        """The share of the blocks that are held, 0 to 1."""
        return 1.0 - len(self._free) / self.num_blocks

    def blocks_for(self, tokens: int) -> int:
        """How many blocks a sequence of `tokens` tokens takes."""
        return -(-tokens // self.block_size)

    def can_fit(self, tokens: int) -> bool:
        """Whether a new sequence of `tokens` tokens would find its blocks now."""
        return self.blocks_for(tokens) <= len(self._free)

    def allocate(self, count: int) -> list[int]:
        """`count` zeroed blocks with one reference each, or OutOfBlocks and none."""
        if count > len(self._free):
            raise OutOfBlocks(f"{count} blocks asked for, {len(self._free)} of {self.num_blocks} are free")
        blocks = [self._free.pop() for _ in range(count)]
        for block in blocks:
            self._references[block] = 1
        if blocks:
            self._clear(blocks)
        return blocks

    def share(self, blocks: list[int]) -> None:
        """One more reference to each of `blocks`, which must be held already."""
        for block in blocks:
            if not self._references[block]:
                raise ValueError(f"block {block} is free and cannot be shared")
            self._references[block] += 1

    def release(self, blocks: list[int]) -> None:
        """One reference less to each of `blocks`; those with none left are free again."""
        for block in blocks:
            if not self._references[block]:
                raise ValueError(f"block {block} is free already")
            self._references[block] -= 1
            if not self._references[block]:
                self._free.append(block)

    def is_shared(self, block: int) -> bool:
        """Whether somebody else holds `block` too, so that it must be copied before it is written."""
        return self._references[block] > 1

    def store(self, layer: int, blocks: Index, offsets: Index, rows: Rows) -> None:
        """Writes rows f32[n, width] of one layer into block `blocks[i]` at offset `offsets[i]`."""
        self.data[layer, blocks, offsets] = rows

    def fetch(self, layer: int, blocks: Index | list[int]) -> Rows:
        """A copy of blocks int[...] of one layer, f32[..., block_size, width]."""
        rows: Rows = self.data[layer, blocks]
        return rows

    def copy(self, source: int, target: int) -> None:
        """Makes block `target` hold what `source` does."""
        self.data[:, target] = self.data[:, source]

    def _make_storage(self) -> None:
        self.data: Rows = np.zeros((self.layers, self.num_blocks + 1, self.block_size, self.width), np.float32)

    def _clear(self, blocks: list[int]) -> None:
        self.data[:, blocks] = 0.0
