"""A block pool whose rows keep their compressed part in INT8, for more than three times as many tokens.

The first `compressed` elements of a row share one float32 scale (largest absolute value / 127) and are a byte each;
the rotary key behind them, which attention is more sensitive to, is kept in float16. What `fetch` returns may be
stored again without any further loss, so that KV may travel between such pools as float32 rows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flowserve.cache.pool import BlockPool, Index, Rows

_LARGEST = 127.0
_LEAST = 1e-30  # a scale that is not zero for a row of zeros
_HALF = float(np.finfo(np.float16).max)


class Int8BlockPool(BlockPool):
    """Takes `compressed + rotary + 4` bytes a token and layer, with a rotary key of `rotary` bytes."""

    def __init__(self, num_blocks: int, block_size: int, layers: int, width: int, compressed: int) -> None:
        if not 0 < compressed <= width:
            raise ValueError(f"{compressed} of {width} elements of a row cannot be compressed")
        self.compressed = compressed
        super().__init__(num_blocks, block_size, layers, width)

    def store(self, layer: int, blocks: Index, offsets: Index, rows: Rows) -> None:
        compressed = rows[:, : self.compressed]
        scales = np.abs(compressed).max(axis=1, keepdims=True) / _LARGEST + np.float32(_LEAST)
        self._codes[layer, blocks, offsets] = np.rint(compressed / scales)
        self._scales[layer, blocks, offsets] = scales
        self._rotary[layer, blocks, offsets] = rows[:, self.compressed :].clip(-_HALF, _HALF)

    def fetch(self, layer: int, blocks: Index | list[int]) -> Rows:
        codes = self._codes[layer, blocks]
        rows = np.empty((*codes.shape[:-1], self.width), np.float32)
        np.multiply(codes, self._scales[layer, blocks], out=rows[..., : self.compressed])
        rows[..., self.compressed :] = self._rotary[layer, blocks]
        return rows

    def copy(self, source: int, target: int) -> None:
        for part in (self._codes, self._scales, self._rotary):
            part[:, target] = part[:, source]

    def _make_storage(self) -> None:
        places = (self.layers, self.num_blocks + 1, self.block_size)
        self._codes: npt.NDArray[np.int8] = np.zeros((*places, self.compressed), np.int8)
        self._scales: npt.NDArray[np.float32] = np.zeros((*places, 1), np.float32)
        self._rotary: npt.NDArray[np.float16] = np.zeros((*places, self.width - self.compressed), np.float16)

    def _clear(self, blocks: list[int]) -> None:
        for part in (self._codes, self._scales, self._rotary):
            part[:, blocks] = 0
