"""The DeepSeek-V3 forward pass over a paged latent cache, as steps that a lockstep engine can wait in.

Every iteration, whatever it computes, calls `experts` once for each MoE layer in rising order, so ranks that hold a
prefill chunk, a decode batch or nothing at all meet in the same collectives. A method that raises before its first
step has called none of them and has changed nothing. After one that is abandoned midway (a peer was lost) the caller
truncates its sequences to the lengths that they had: only their new rows were written.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowserve.cache import BlockPool, Int8BlockPool, OutOfBlocks, SequenceKV
from flowserve.model.arrays import FloatArray, IntArray
from flowserve.model.attention import Attention
from flowserve.model.decode import DecodeAttention
from flowserve.model.decoder import DecoderLayer, idle_layer
from flowserve.model.experts import Experts
from flowserve.model.functional import rms_norm
from flowserve.model.plan import DecodePlans
from flowserve.model.prefill import PrefillAttention
from flowserve.model.rope import Rotations, rotations
from flowserve.model.weights import EMBEDDING, FINAL_NORM, HEAD, Weights
from xccl import Steps


class Model:
    """Everything of a model but its routed experts, which are the caller's (`experts` in the methods)."""

    def __init__(self, weights: Weights, max_batch: int) -> None:
        """`max_batch`: the most rows of a decode step."""
        self.config = weights.config
        self.max_batch = max_batch
        self.layers = [DecoderLayer(weights, layer) for layer in range(self.config.num_hidden_layers)]
        self.embedding = weights.table(EMBEDDING)
        self._norm = weights.vector(f"{FINAL_NORM}.weight")
        self.head = weights.linear(HEAD)
        self.plans = DecodePlans(self.config)
        self._frequencies = self.config.rope.frequencies()

    def new_pool(self, num_blocks: int, block_size: int, *, mtp: bool = False, int8: bool = False) -> BlockPool:
        """A KV pool of the model's depth and width, one layer deeper with `mtp`.

        With `int8`, its rows' compressed part takes a byte an element.
        """
        size = num_blocks, block_size, self.config.num_hidden_layers + mtp, self.config.latent_width
        return Int8BlockPool(*size, self.config.kv_lora_rank) if int8 else BlockPool(*size)

    def prefill(self, tokens: IntArray, start: int, seq: SequenceKV, experts: Experts) -> Steps[FloatArray]:
        """Runs the next chunk of one sequence and returns the logits f32[V] after its last token.

        `tokens`: i32[n], at positions from `start`, which is the sequence's length before; their KV is appended.
        No token at all is an idle iteration, whose result is empty. Raises ValueError for tokens or positions that the
        model does not have, OutOfBlocks if the pool is full.
        """
        hidden = yield from self.read(tokens, start, seq, experts)
        return self.logits(hidden[-1:]).reshape(-1) if len(tokens) else np.empty(0, np.float32)

    def read(self, tokens: IntArray, start: int, seq: SequenceKV, experts: Experts) -> Steps[FloatArray]:
        """As `prefill`, but returns the hidden states f32[n, H], which `logits` takes."""
        if not len(tokens):
            yield from self.idle(experts)
            return np.empty((0, self.config.hidden_size), np.float32)
        positions = np.arange(start, start + len(tokens), dtype=np.int32)
        self._check(tokens, positions)
        _append([seq], [start], len(tokens))
        attention = PrefillAttention(seq, self.rotations(positions))
        return (yield from self.forward(self.embed(tokens), attention, experts, len(tokens)))

    def decode(
        self, tokens: IntArray, positions: IntArray, kv: Sequence[SequenceKV], experts: Experts
    ) -> Steps[FloatArray]:
        """One step of a batch: the logits f32[B, V] after token i32[B] at position i32[B] of its sequence.

        A position is its sequence's length before; the token's KV is appended. Several rows may belong to one sequence,
        one behind the other: each sees those before it. B may be 0: an idle iteration. Raises ValueError for tokens or
        positions that the model does not have, or a batch above `max_batch`; OutOfBlocks if the pool is full, with no
        sequence changed.
        """
        hidden = yield from self.step(tokens, positions, kv, experts)
        return self.logits(hidden) if len(tokens) else np.empty((0, self.config.vocab_size), np.float32)

    def step(
        self, tokens: IntArray, positions: IntArray, kv: Sequence[SequenceKV], experts: Experts
    ) -> Steps[FloatArray]:
        """As `decode`, but returns the hidden states f32[B, H], which `logits` takes."""
        batch = len(tokens)
        if not batch:
            yield from self.idle(experts)
            return np.empty((0, self.config.hidden_size), np.float32)
        if batch > self.max_batch:
            raise ValueError(f"a decode batch of {batch} rows is above the model's {self.max_batch}")
        self._check(tokens, positions)
        _append(kv, positions.tolist(), 1)
        plan = self.plans[batch]
        plan.fill(tokens, positions)
        attention = DecodeAttention(kv, positions.tolist(), self.rotations(plan.positions), plan)
        hidden = yield from self.forward(self.embed(plan.tokens), attention, experts, batch)
        return hidden[:batch]

    def idle(self, experts: Experts) -> Steps[None]:
        """An iteration without tokens: takes part in every MoE layer's collective and computes nothing."""
        for layer in self.config.moe_layers:
            yield from idle_layer(self.config, layer, experts)

    def embed(self, tokens: IntArray) -> FloatArray:
        """The residual stream f32[T, H] that tokens i32[T] start with."""
        return self.embedding[tokens]

    def rotations(self, positions: IntArray) -> Rotations:
        """The rotary factors c64[T, rope / 2] of positions i32[T]."""
        return rotations(self._frequencies, self.config.rope.magnitude(), positions)

    def forward(self, x: FloatArray, attention: Attention, experts: Experts, live: int) -> Steps[FloatArray]:
        """All layers and the final norm, f32[T, H] -> f32[T, H]; rows from `live` on are padding."""
        for layer in self.layers:
            x = yield from layer.forward(x, attention, experts, live)
        return rms_norm(x, self._norm, self.config.rms_norm_eps)

    def logits(self, hidden: FloatArray) -> FloatArray:
        """f32[T, H] -> f32[T, V]."""
        return self.head(hidden)

    def _check(self, tokens: IntArray, positions: IntArray) -> None:
        if tokens.min() < 0 or tokens.max() >= self.config.vocab_size:
            raise ValueError(f"tokens must be in 0..{self.config.vocab_size - 1}, not {tokens.tolist()}")
        if positions.max() >= self.config.max_position_embeddings:
            raise ValueError(f"position {positions.max()} is above {self.config.max_position_embeddings - 1}")


def _append(sequences: Sequence[SequenceKV], starts: Sequence[int], tokens: int) -> None:
    """Appends `tokens` to each sequence in turn, or to none."""
    done: list[SequenceKV] = []
    try:
        for sequence, start in zip(sequences, starts, strict=True):
            if sequence.length != start:
                raise ValueError(f"position {start} does not follow a sequence of {sequence.length} tokens")
            sequence.append(tokens)
            done.append(sequence)
    except (OutOfBlocks, ValueError):
        for sequence in reversed(done):
            sequence.truncate(sequence.length - tokens)
        raise
