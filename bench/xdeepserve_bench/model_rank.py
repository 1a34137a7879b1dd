"""One rank of several as a worker of ``bench model``: a share of the experts and of the batch, joined by XCCL.

Ranks compute in step, so a call that computes is sent to all of them before any answer is read.
"""

import argparse
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flowserve.cache import SequenceKV
from flowserve.engine.expert_load import ExpertCounts
from flowserve.engine.expert_map import ExpertMap
from flowserve.engine.experts import DistributedExperts
from flowserve.model import ExpertWeights, Model, Weights
from xccl import Endpoint, Group, Layout, Peer, run
from xdeepserve_bench.model_worker import serve, timed

BLOCK, SEED = 32, 7
MAX_BATCH, MAX_RANKS = 32, 8
LIMIT_SECONDS = 120.0


@dataclass(frozen=True)
class Still:
    """A map that nobody changes."""

    map: ExpertMap


class Rank:
    """Rank `rank` of `ranks`; its memory lies in `shared`."""

    def __init__(self, directory: Path, shared: Path, rank: int, ranks: int) -> None:
        self._rank = rank
        weights = Weights.open(directory)
        config = weights.config
        self._model = Model(weights, MAX_BATCH)
        self._weights = ExpertWeights(weights, held=())
        self._map = ExpertMap.plain(self._weights.layers, config.n_routed_experts, ranks)
        self._weights.hold(self._map.held(rank))
        weights.forget_pages()
        layout = Layout(
            max_peers=MAX_RANKS, max_tokens=MAX_BATCH, hidden=config.hidden_size, top_k=config.num_experts_per_tok
        )
        self._endpoint = Endpoint.create(shared, f"rank{rank}", layout)
        self._experts: DistributedExperts | None = None

    def describe(self) -> dict[str, Any]:
        """What the others need to reach it."""
        return {"peer": [self._rank, self._endpoint.incarnation, self._endpoint.uri]}

    def join(self, peers: list[tuple[int, str, str]]) -> dict[str, Any]:
        """Joins all ranks."""
        group = run(
            Group.join(self._endpoint, epoch=1, rank=self._rank, peers=[Peer(*peer) for peer in peers]),
            timeout=LIMIT_SECONDS,
        )
        counts = ExpertCounts(tuple(self._weights.layers), self._model.config.n_routed_experts)
        self._experts = DistributedExperts(group, self._weights, Still(self._map), counts, LIMIT_SECONDS)
        return {}

    def decode(self, batch: int, prompt: int, steps: int) -> dict[str, Any]:
        """The median of `steps` steps with `batch` sequences here, and as many on every other rank."""
        assert self._experts is not None
        experts, config = self._experts, self._model.config
        draw = np.random.default_rng(SEED + self._rank)
        pool = self._model.new_pool(batch * ((prompt + steps) // BLOCK + 1), BLOCK)
        sequences = [SequenceKV(pool) for _ in range(batch)]
        for one in sequences:
            tokens = draw.integers(3, config.vocab_size, prompt, dtype=np.int32)
            run(self._model.prefill(tokens, 0, one, experts), timeout=LIMIT_SECONDS)
        tokens = draw.integers(3, config.vocab_size, batch, dtype=np.int32)

        def step() -> None:
            nonlocal tokens
            positions = np.array([one.length for one in sequences], np.int32)
            logits = run(self._model.decode(tokens, positions, sequences, experts), timeout=LIMIT_SECONDS)
            tokens = logits.argmax(axis=1).astype(np.int32)

        return {"seconds": statistics.median(timed(step) for _ in range(steps))}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("shared", type=Path)
    parser.add_argument("rank", type=int)
    parser.add_argument("ranks", type=int)
    parser.add_argument("checkpoint", type=Path)
    given = parser.parse_args()
    serve(Rank(given.checkpoint, given.shared, given.rank, given.ranks), sys.stdin, sys.stdout)
