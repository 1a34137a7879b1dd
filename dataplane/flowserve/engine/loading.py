"""From a checkpoint directory to what an engine computes with; the only place that reads weights.

What is wrong with a checkpoint stays wrong, so every failure here is ``Unusable`` with the reason that users see.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from flowserve.cache import BlockPool
from flowserve.model import CheckpointError, ExpertWeights, Model, ModelConfig, MtpLayer, UnsupportedModel, Weights
from flowserve.model.checkpoint import INDEX_FILE, SINGLE_FILE
from flowserve.process import Unusable
from flowserve.wire import Limits
from xccl import Layout

DRAFT_EXPERTS_BYTES = 16 << 20


class Runtime:
    """The model, its MTP layer if it drafts, its KV pool, and the routed experts that this rank holds at present.

    Ranks share out the experts of ``spread``, the layers by number. Those of an MTP layer are no part of it where all
    of them take at most DRAFT_EXPERTS_BYTES: every rank holds them, since waiting for peers, once a draft, costs more
    than drafting itself. Ranks have the same checkpoint, hence the same ``spread``. Drafts are hints, which the model
    verifies: what makes them is rounded to INT8.
    """

    def __init__(self, directory: Path, limits: Limits, elsewhere: Mapping[str, Path] | None = None) -> None:
        """Files of tensors that ``elsewhere`` names lie there, not in ``directory``. Raises Unusable."""
        self.directory = directory
        for names in (("config.json",), (SINGLE_FILE, INDEX_FILE)):
            if not any(name in (elsewhere or ()) or (directory / name).is_file() for name in names):
                raise Unusable("CheckpointMissing", f"{directory}: there is no {' or '.join(names)}")
        with _explained():
            self._weights = Weights.open(directory, elsewhere)
            self.model = Model(self._weights, limits.max_batch * (1 + limits.speculative_tokens))
            self.mtp = MtpLayer(self._weights.rounded(), self.model) if limits.speculative_tokens else None
        self.max_batch, self.drafts = limits.max_batch, limits.speculative_tokens
        self.config = self.model.config
        self.max_context = min(limits.max_context_tokens, self.config.max_position_embeddings)
        self.pool: BlockPool = self.model.new_pool(
            limits.kv_blocks,
            limits.kv_block_tokens,
            mtp=self.mtp is not None,
            int8=limits.kv_cache_dtype == "int8",
        )
        self.layout = layout_of(self.config, limits)
        drafting = (self.mtp.number,) if self.mtp else ()
        self.experts = ExpertWeights(self._weights, held=(), layers=(*self.config.moe_layers, *drafting))
        whole = drafting if expert_bytes(self.config) <= DRAFT_EXPERTS_BYTES else ()
        self.spread = tuple(layer for layer in self.experts.layers if layer not in whole)
        if whole:
            with _explained():
                self.experts.layers |= ExpertWeights(self._weights.rounded(), layers=whole).layers
        self._weights.forget_pages()

    def hold(self, held: Mapping[int, Collection[int]]) -> None:
        """Holds these routed experts of these layers, of which those are read that are not here. Raises Unusable."""
        with _explained():
            self.experts.hold(held)
        self._weights.forget_pages()


def expert_bytes(config: ModelConfig) -> int:
    """What the routed experts of one layer take in float32: gate, up and down."""
    return 4 * 3 * config.n_routed_experts * config.moe_intermediate_size * config.hidden_size


def layout_of(config: ModelConfig, limits: Limits) -> Layout:
    """The XCCL memory of an engine; engines that talk have the same."""
    return Layout(
        max_peers=limits.max_ranks,
        max_tokens=max(limits.max_batch * (1 + limits.speculative_tokens), limits.prefill_chunk_tokens),
        hidden=config.hidden_size,
        top_k=config.num_experts_per_tok,
    )


def layout_in(directory: Path, limits: Limits) -> Layout:
    """The same, before the weights are there. Raises Unusable."""
    with _explained():
        return layout_of(ModelConfig.load(directory), limits)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except UnsupportedModel as error:
        raise Unusable("UnsupportedModel", str(error)) from error
    except CheckpointError as error:
        raise Unusable("CheckpointDamaged", str(error)) from error
