"""Multi-token prediction: one more decoder layer, which guesses the token after the next one.

Row i takes the main model's hidden state at position i (after its final norm) and the embedding of the token that
follows it, both normalised, through one projection to a decoder layer at position i; its head then tells token i + 2.
The layer is number `num_hidden_layers` of the checkpoint. Its attention has latent rows of its own: the pool of its
sequences needs one plane more than the main model's. Applied again, to its own result and the token it guessed, it
guesses one token further. Source: DeepSeek-V3, arXiv:2412.19437, §2.2; as there, one layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowserve.cache import SequenceKV
from flowserve.model.arrays import FloatArray, Index, IntArray
from flowserve.model.attention import Attention
from flowserve.model.decode import DecodeAttention
from flowserve.model.decoder import DecoderLayer, idle_layer
from flowserve.model.errors import UnsupportedModel
from flowserve.model.experts import Experts
from flowserve.model.functional import rms_norm
from flowserve.model.linear import fill
from flowserve.model.model import Model
from flowserve.model.weights import EMBEDDING, HEAD, Weights, layer_name, mtp_shapes
from xccl import Steps


class MtpLayer:
    """The first MTP layer of a model; its routed experts are the caller's, as the main model's are.

    Embedding and head are the main model's own where the checkpoint has copies of them, as DeepSeek's has. With rounded
    weights the head is not, and drafts are a little less often right, for a quarter of the bytes.
    """

    def __init__(self, weights: Weights, model: Model) -> None:
        """Raises UnsupportedModel if the model has no MTP layer, CheckpointError if its tensors are not sound."""
        config = weights.config
        if not config.num_nextn_predict_layers:
            raise UnsupportedModel("config.json: num_nextn_predict_layers is 0: the model has no layer to draft with")
        self._config = config
        self.number = config.num_hidden_layers
        weights.check(mtp_shapes(config, self.number))
        name = layer_name(self.number)
        self._eps = config.rms_norm_eps
        self._embedding, self._head = model.embedding, model.head
        if not weights.alike(f"{name}.embed_tokens", EMBEDDING):
            self._embedding = weights.table(f"{name}.embed_tokens")
        if weights.rounds or not weights.alike(f"{name}.shared_head.head", HEAD):
            self._head = weights.linear(f"{name}.shared_head.head")
        self._embedding_norm = weights.vector(f"{name}.enorm.weight")
        self._hidden_norm = weights.vector(f"{name}.hnorm.weight")
        self._projection = weights.linear(f"{name}.eh_proj")
        self._layer = DecoderLayer(weights, self.number)
        self._norm = weights.vector(f"{name}.shared_head.norm.weight")

    def forward(
        self,
        hidden: FloatArray,
        following: IntArray,
        attention: Attention,
        experts: Experts,
        live: int,
        wanted: Index | None = None,
    ) -> Steps[FloatArray]:
        """What `logits` takes, f32[T, H], of hidden states f32[T, H] and the tokens i32[T] that follow them.

        `attention` is over the positions of the hidden states; rows from `live` on are padding; only `wanted` rows,
        int[n], come back, filled.
        """
        x = yield from self._layer.forward(self._enter(hidden, following), attention, experts, live, wanted)
        return rms_norm(x, self._norm, self._eps)

    def read(self, model: Model, hidden: FloatArray, following: IntArray, start: int, seq: SequenceKV) -> None:
        """Reads a chunk that `model` has read, whose states f32[n, H] are at positions from `start`.

        The main model has appended them. Nothing is guessed yet, so that only their latent rows are needed, which
        neither attention nor an expert takes part in.
        """
        rotations = model.rotations(np.arange(start, start + len(hidden), dtype=np.int32))
        latent = self._layer.latent(self._enter(hidden, following), rotations)
        seq.pool.store(self.number, *seq.slots(start, len(hidden)), latent)

    def step(
        self,
        model: Model,
        hidden: FloatArray,
        following: IntArray,
        positions: IntArray,
        kv: Sequence[SequenceKV],
        wanted: Index,
        experts: Experts,
    ) -> Steps[FloatArray]:
        """Runs rows f32[B, H] at positions i32[B] of sequences that reach beyond them; B is not 0.

        Returns the `wanted` ones of them, int[n] -> f32[n, H]; the others are there to be attended to.
        """
        plan = model.plans[len(hidden)]
        plan.fill(following, positions)
        attention = DecodeAttention(kv, positions.tolist(), model.rotations(plan.positions), plan)
        out = yield from self.forward(fill(hidden), plan.tokens, attention, experts, len(hidden), wanted)
        return out[: len(wanted)]

    def idle(self, experts: Experts) -> Steps[None]:
        """Takes part in the layer's collective and computes nothing."""
        return idle_layer(self._config, self.number, experts)

    def logits(self, hidden: FloatArray) -> FloatArray:
        """f32[T, H] -> f32[T, V]: of the token after the one that follows."""
        return self._head(hidden)

    def _enter(self, hidden: FloatArray, following: IntArray) -> FloatArray:
        embedded = rms_norm(self._embedding[following], self._embedding_norm, self._eps)
        both = np.concatenate([embedded, rms_norm(hidden, self._hidden_norm, self._eps)], axis=1)
        return self._projection(both)
