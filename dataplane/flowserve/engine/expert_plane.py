"""The routed experts of an engine over all its epochs: what it holds, what it counts, and which placement is in force.

Ranks that meet in a new epoch may come from different ones: one was restarted, one had taken up a change that another
had not. So their first vote compares placements. If all have the same they keep it; otherwise all go back to the plain
one, version 0, which every rank can load from the checkpoint without asking anybody. Whoever orchestrates sees that and
sends the change again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from flowserve.engine.expert_fetch import packed_bytes
from flowserve.engine.expert_load import ExpertCounts
from flowserve.engine.expert_map import ExpertMap
from flowserve.engine.expert_swap import Swapper, SwapTally
from flowserve.engine.loading import Runtime
from flowserve.epoch import Refused
from flowserve.wire import ExpertState
from flowserve.wire_experts import ExpertLoad, ExpertOrder, ExpertTable
from xccl import Endpoint, Group, Peer, Steps

Drive = Callable[[Steps[tuple[int, ...]]], Awaitable[tuple[int, ...]]]

log = structlog.get_logger()


class ExpertPlane:
    """One engine's. ``wake`` makes the lockstep loop look around."""

    def __init__(self, runtime: Runtime, endpoint: Endpoint, wake: Callable[[], None]) -> None:
        self.weights = runtime.experts
        self.counts = ExpertCounts(runtime.spread, runtime.config.n_routed_experts)
        self._runtime = runtime
        self._endpoint = endpoint
        self._wake = wake
        self._tally = SwapTally()
        self._epoch = 0
        self._swapper: Swapper | None = None
        self._map: ExpertMap | None = None
        self._rank = -1
        self._expert_bytes = 0  # the largest expert's, also when none is held any more
        self._reading: asyncio.Future[None] | None = None

    async def prepare(self, rank: int, ranks: int) -> None:
        """Holds what ``rank`` of ``ranks`` needs to begin an epoch. Raises Unusable."""
        if self._map is None or (self._map.ranks, self._rank) != (ranks, rank):
            await self._go_back(rank, ranks)

    async def meet(self, group: Group, peers: Sequence[Peer], drive: Drive) -> Swapper:
        """Agrees with the other ranks on the placement to begin with. Raises what votes raise, or Unusable."""
        assert self._map is not None
        placements = await drive(group.vote(self._map.digest))
        if len(set(placements)) > 1:
            if self._map.version:
                log.warning("the placement of experts is lost: not all ranks have it", version=self._map.version)
            await self._go_back(group.rank, group.size)
            await drive(group.vote(self._map.digest))
        self._epoch = group.epoch
        self._swapper = Swapper(
            self._endpoint, group.epoch, group.rank, peers, self.weights, self._map, self._tally, self._wake
        )
        return self._swapper

    def leave(self) -> None:
        """The epoch has ended, perhaps in the middle of a change; what was in force stays."""
        if self._swapper is not None:
            self._swapper.close()
            self._map, self._swapper = self._swapper.in_force, None

    def offer(self, order: ExpertOrder) -> None:
        """Begins a change of placement; the same one again is harmless. Raises Refused."""
        if self._swapper is None:
            raise Refused("the engine is in no group; wait until it reports state Serving")
        self._swapper.offer(order)

    def give_up(self, version: int) -> None:
        """Ends the change to ``version`` if it is on its way."""
        if self._swapper is not None:
            self._swapper.give_up(version, f"version {version}: called off")

    def state(self) -> ExpertState:
        """For the heartbeat."""
        tally, swapper = self._tally, self._swapper
        done = {"swaps": tally.swaps, "moved_bytes": tally.moved_bytes, "swap_seconds": tally.seconds}
        done["stalls"] = tally.stalls
        if swapper is None:
            return ExpertState(version=self._map.version if self._map else 0, **done)
        swap = swapper.swap
        return ExpertState(
            version=swap.version,
            target=swap.target,
            phase=swap.phase.value,
            ready=swap.ready,
            given_up=swap.given_up,
            error=swapper.error,
            **done,
        )

    def load(self) -> ExpertLoad:
        """What was counted until now."""
        return ExpertLoad(
            incarnation=self._endpoint.incarnation,
            epoch=self._epoch,
            version=self._current.version if self._current else 0,
            layers=self.counts.layers,
            chosen=self.counts.chosen(),
            served=self.counts.served(),
        )

    def table(self) -> ExpertTable:
        """The placement in force. Raises Refused before the first epoch."""
        current, config = self._current, self._runtime.config
        if current is None:
            raise Refused("the engine is in no group yet, and holds no experts")
        return ExpertTable(
            epoch=self._epoch,
            version=current.version,
            top_k=config.num_experts_per_tok,
            experts=config.n_routed_experts,
            groups=config.n_group,
            expert_bytes=self._expert_bytes,
            layers=current.table(),
        )

    @property
    def _current(self) -> ExpertMap | None:
        return self._swapper.in_force if self._swapper else self._map

    async def _go_back(self, rank: int, ranks: int) -> None:
        plain = ExpertMap.plain(self._runtime.spread, self._runtime.config.n_routed_experts, ranks)
        if self._reading is not None:
            await asyncio.wait({self._reading})  # a thread of an epoch that was cut short cannot be stopped
        loop = asyncio.get_running_loop()
        self._map, self._reading = None, loop.run_in_executor(None, self._runtime.hold, plain.held(rank))
        await asyncio.shield(self._reading)
        held = [expert for layer in self.weights.layers.values() for expert in layer.held.values()]
        self._expert_bytes = max(map(packed_bytes, held), default=0)
        self._map, self._rank = plain, rank
