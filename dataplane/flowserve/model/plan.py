"""Decode plans: what a decode step of a given number of rows works in, made once and used again.

An accelerator captures one graph for each batch size, with fixed buffers, and replays the smallest that fits. Here the
sizes are those that `linear.padded` gives (2, 4, 6, 8, and multiples of 8), and a plan is the buffers: the inputs,
which a step fills from the front, and the workspaces of attention. All layers of a step use the same ones, each before
it hands the turn to anybody else, so two steps that take turns never meet in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from flowserve.model.arrays import FloatArray, IntArray
from flowserve.model.config import ModelConfig
from flowserve.model.linear import padded


@dataclass(frozen=True)
class DecodePlan:
    """The buffers of `rows` rows."""

    rows: int
    tokens: IntArray  # [rows]
    positions: IntArray  # [rows]
    queries: FloatArray  # [rows, heads, kv_rank + rope], against latent rows
    context: FloatArray  # [rows, heads, kv_rank]
    values: FloatArray  # [rows, heads, v]

    @classmethod
    def of(cls, rows: int, heads: int, rank: int, rope: int, values: int) -> Self:
        """For attention of these sizes: heads, and the widths of compressed KV, rotary key and value."""
        return cls(
            rows,
            np.zeros(rows, np.int32),
            np.zeros(rows, np.int32),
            np.zeros((rows, heads, rank + rope), np.float32),
            np.zeros((rows, heads, rank), np.float32),
            np.zeros((rows, heads, values), np.float32),
        )

    def fill(self, tokens: IntArray, positions: IntArray) -> None:
        """Sets the inputs; those behind the batch are token 0 at position 0, whose results nobody reads."""
        live = len(tokens)
        self.tokens[:live], self.tokens[live:] = tokens, 0
        self.positions[:live], self.positions[live:] = positions, 0


class DecodePlans:
    """The plans of one model, each made when it is first needed."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        self._plans: dict[int, DecodePlan] = {}

    def __getitem__(self, batch: int) -> DecodePlan:
        """The smallest plan for a batch of this size."""
        rows = padded(batch)
        if rows not in self._plans:
            config = self._config
            self._plans[rows] = DecodePlan.of(
                rows, config.num_attention_heads, config.kv_lora_rank, config.qk_rope_head_dim, config.v_head_dim
            )
        return self._plans[rows]

    def __len__(self) -> int:
        return len(self._plans)
