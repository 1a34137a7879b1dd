"""A change of placement as one rank of one epoch takes part in it: ``eplb.swap`` says when, ``Change`` does the work.

Steps are taken in ``heard``, between two iterations, and are nothing but new references to maps and weights; whatever
takes time is done beside the iterations. The old weights stay until ENABLE, so until then a ROLLBACK is a reference
too. The group need not be busy: whoever has news makes the parked loop hold a vote.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from eplb import Unplannable
from eplb.swap import NotTaken, Step, Swap
from flowserve.engine.expert_change import Change
from flowserve.engine.expert_map import ExpertMap
from flowserve.epoch import Refused
from flowserve.model import CheckpointError, ExpertWeights
from flowserve.model.experts import LayerExperts
from flowserve.wire_experts import ExpertOrder
from xccl import Endpoint, Peer, XcclError

log = structlog.get_logger()


@dataclass
class SwapTally:
    """Since the process started; ``stalls``: changes given up; ``seconds``: how long the last change took."""

    swaps: int = 0
    stalls: int = 0
    moved_bytes: int = 0
    seconds: float = 0.0


class Swapper:
    """The ``lockstep.Agreement`` of one epoch. ``peers`` by rank; ``wake`` makes the loop hold a vote.

    ``map`` is what this iteration uses, ``in_force`` the placement that the next epoch would begin with.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        epoch: int,
        rank: int,
        peers: Sequence[Peer],
        weights: ExpertWeights,
        in_force: ExpertMap,
        tally: SwapTally,
        wake: Callable[[], None],
    ) -> None:
        self.map = self.in_force = in_force
        self.swap = Swap(in_force.version)
        self.error = ""
        self._endpoint = endpoint
        self._epoch = epoch
        self._rank = rank
        self._peers = peers
        self._weights = weights
        self._tally = tally
        self._wake = wake
        self._said = -1
        self._change: Change | None = None
        self._loaded: dict[int, LayerExperts] = {}
        self._task: asyncio.Task[None] | None = None
        self._watchdog: asyncio.TimerHandle | None = None

    @property
    def news(self) -> bool:
        """Whether the others should hear something that they have not heard yet."""
        return self.swap.speaks and self.swap.word != self._said

    def say(self) -> int:
        """The word for the next vote."""
        self._said = self.swap.word
        return self._said

    def heard(self, words: tuple[int, ...]) -> None:
        """Takes the step that follows from a vote."""
        self.swap, step = self.swap.hear(words)
        if step is Step.NOTHING:
            return
        change = self._change
        assert change is not None
        if step is Step.DISABLE:
            self.map = change.disabled
            self._begin(self._load, change)
            return
        if step is Step.ENABLE:
            self._weights.layers.update(self._loaded)
            self.map = self.in_force = change.new
            self._tally.swaps += 1
            self._tally.moved_bytes += change.moved_bytes
            self._tally.seconds = time.monotonic() - change.began
            log.info("experts have moved", version=change.order.version, bytes=change.moved_bytes)
        else:
            self.map = self.in_force
            self._tally.stalls += 1
            log.warning("a change of placement was given up", version=change.order.version, error=self.error)
        self.close()

    def offer(self, order: ExpertOrder) -> None:
        """Begins a change; the same one again is harmless. Raises Refused."""
        if order.epoch != self._epoch:
            raise Refused(f"the order is for epoch {order.epoch}, this is epoch {self._epoch}")
        if self._change is not None and self._change.order.version == order.version and self._change.order != order:
            raise Refused(f"version {order.version} is on its way with other content; send a newer version")
        try:
            swap = self.swap.offer(order.version)
            if swap == self.swap:
                return
            change = Change(order, self.in_force, self._weights, self._endpoint, self._rank, self._peers)
        except (NotTaken, Unplannable) as error:
            raise Refused(str(error)) from error
        self.swap, self.error, self._change = swap, "", change
        self._begin(Change.prefetch, change)

    def give_up(self, version: int, reason: str) -> None:
        """Ends the change to ``version`` if it is on its way: all ranks roll back at the next vote."""
        if self.swap.target == version and not self.swap.failed:
            self.error = reason[:1024]
            self.swap = self.swap.fail()
            self._wake()

    def close(self) -> None:
        """Forgets the change under way; what is in force stays."""
        if self._task is not None:
            self._task.cancel()
        if self._watchdog is not None:
            self._watchdog.cancel()
        if self._change is not None:
            self._change.close()
        self._change, self._loaded = None, {}

    def _begin(self, work: Callable[[Change], Awaitable[None]], change: Change) -> None:
        order = change.order
        if self._watchdog is not None:
            self._watchdog.cancel()
        late = f"version {order.version}: no progress within {order.deadline_seconds:g} s"
        loop = asyncio.get_running_loop()
        self._watchdog = loop.call_later(order.deadline_seconds, self.give_up, order.version, late)
        self._task = asyncio.create_task(self._do(work, change))

    async def _do(self, work: Callable[[Change], Awaitable[None]], change: Change) -> None:
        version = change.order.version
        try:
            await work(change)
        except (XcclError, CheckpointError, OSError, ValueError) as error:
            self.give_up(version, f"version {version}: {error or type(error).__name__}")
            return
        self.swap = self.swap.done()
        self._wake()

    async def _load(self, change: Change) -> None:
        self._loaded = await change.load()
