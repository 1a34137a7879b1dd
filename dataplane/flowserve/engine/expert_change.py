"""What one rank has to do for one change of placement: bring weights here, and give peers what they lack.

    prefetch   what others will lack is published, what is missing here is fetched into staging buffers: from a peer
               over XCCL, or where that fails from the checkpoint on disk
    load       staging buffers become weights of their own: all tensors of an expert, scales too

Nothing that is in force is touched. A staging buffer belongs to one expert of one version, so it is never written
again before it is consumed.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import structlog

from eplb.transfers import Transfer, switched_off, transfers
from flowserve.engine.expert_fetch import Bytes, Source, packed_bytes, publish, unpacked
from flowserve.engine.expert_map import ExpertMap
from flowserve.model import ExpertWeights
from flowserve.model.experts import Expert, LayerExperts
from flowserve.wire_experts import ExpertOrder
from xccl import Endpoint, Peer, XcclError
from xccl.endpoint import experts_name

log = structlog.get_logger()

Key = tuple[int, int]  # layer, expert


class Change:
    """From the placement ``old`` to the one of ``order``, on ``rank``. Raises Unplannable for an unsound order."""

    def __init__(
        self,
        order: ExpertOrder,
        old: ExpertMap,
        weights: ExpertWeights,
        endpoint: Endpoint,
        rank: int,
        peers: Sequence[Peer],
    ) -> None:
        self.order = order
        self.new = old.changed(order.version, order.layers)
        self.began = time.monotonic()
        self.moved_bytes = 0
        self._layers = [each.layer for each in order.layers]
        pairs = {layer: (old.layers[layer].slots, self.new.layers[layer].slots) for layer in self._layers}
        self.disabled = old.without({layer: switched_off(*pair, old.experts) for layer, pair in pairs.items()})
        self._transfers = [move for layer, pair in pairs.items() for move in transfers(layer, *pair)]
        self._weights = weights
        self._endpoint = endpoint
        self._rank = rank
        self._peers = peers
        self._segment = experts_name(order.epoch, order.version)
        self._staged: dict[Key, Bytes | Expert] = {}

    async def prefetch(self) -> None:
        """Fills the staging buffers. Raises CheckpointError or OSError where neither a peer nor the disk helps."""
        mine = _keys([move for move in self._transfers if move.source == self._rank])
        if mine:
            held = self._held
            await publish(self._endpoint, self._segment, [held[layer][expert] for layer, expert in mine])
        wanted: dict[int, list[Key]] = defaultdict(list)
        for move in self._transfers:
            if move.target == self._rank:
                wanted[move.source].append((move.layer, move.expert))
        for source, keys in wanted.items():
            try:
                await self._fetch(source, keys)
            except XcclError as error:
                log.warning("experts are read from disk", source=source, experts=len(keys), error=str(error))
                for layer, expert in keys:
                    if (layer, expert) not in self._staged:
                        self._staged[layer, expert] = await asyncio.to_thread(self._weights.read, layer, expert)
        self.moved_bytes = sum(
            each.nbytes if isinstance(each, np.ndarray) else packed_bytes(each) for each in self._staged.values()
        )

    async def load(self) -> dict[int, LayerExperts]:
        """The changed layers as they are to be, made of what was staged and of what is here."""
        held, layers = self._held, {}
        for layer, numbers in self.new.held(self._rank).items():
            if layer not in held:
                continue
            experts: dict[int, Expert] = {}
            for expert in sorted(numbers):
                staged = self._staged.pop((layer, expert), None)
                if staged is None:
                    experts[expert] = held[layer][expert]
                elif isinstance(staged, Expert):
                    experts[expert] = staged
                else:
                    experts[expert] = await unpacked(staged, self._model(layer))
            layers[layer] = self._weights.layer(experts)
        return layers

    def close(self) -> None:
        """Takes back what was published."""
        self._endpoint.discard(self._segment)

    async def _fetch(self, source: int, keys: list[Key]) -> None:
        offered = _keys([move for move in self._transfers if move.source == source])
        sizes = [packed_bytes(self._model(layer)) for layer, _ in offered]
        patience = self.order.deadline_seconds / 3  # leaves time for the disk
        peer = Source(self._endpoint, self._peers[source], self._segment, sizes, patience)
        fetched = await peer.fetch([offered.index(key) for key in keys])
        self._staged.update(zip(keys, fetched, strict=True))

    @property
    def _held(self) -> dict[int, dict[int, Expert]]:
        return {layer: self._weights.layers[layer].held for layer in self._layers}

    def _model(self, layer: int) -> Expert:
        """An expert of the layer, as a pattern for others."""
        held = self._weights.layers[layer].held
        return next(iter(held.values())) if held else self._weights.read(layer, 0)


def _keys(moves: Sequence[Transfer]) -> list[Key]:
    """What is moved, each expert once, in an order that both sides know."""
    return sorted({(move.layer, move.expert) for move in moves})
