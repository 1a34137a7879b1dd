"""Ranks of one instance in one process: real memory, real votes, a real model; no ports and no requests."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from flowserve.cache import SequenceKV
from flowserve.engine.expert_plane import ExpertPlane
from flowserve.engine.expert_swap import Swapper
from flowserve.engine.experts import DistributedExperts
from flowserve.engine.loading import Runtime
from flowserve.engine.lockstep import Lockstep
from flowserve.wire import Limits
from flowserve.wire_experts import ExpertOrder, LayerSlots
from xccl import Endpoint, Group, Peer, Steps, arun

MODEL = Path(__file__).parents[3] / "examples/models/tiny-deepseek-v3"
LIMITS = Limits(max_batch=4, prefill_chunk_tokens=16, kv_blocks=64, kv_block_tokens=16, max_ranks=4)
SECONDS = 20.0
PROMPT = list(range(5, 15))


class Rank:
    """One rank: what an engine has between its ports and its output."""

    def __init__(self, number: int, endpoint: Endpoint) -> None:
        self.number = number
        self.endpoint = endpoint
        self.runtime = Runtime(MODEL, LIMITS)
        self.wake = asyncio.Event()
        self.plane = ExpertPlane(self.runtime, endpoint, self.wake.set)
        self.tokens: list[int] = []
        self.want = 0  # tokens
        self.moved = asyncio.Event()
        self.versions: set[int] = set()
        self._kv = SequenceKV(self.runtime.pool)
        self.swapper: Swapper
        self._spread: DistributedExperts
        self._group: Group

    async def join(self, epoch: int, peers: Sequence[Peer], ring: Lockstep | None = None) -> None:
        await self.plane.prepare(self.number, len(peers))
        joining = Group.join(self.endpoint, epoch=epoch, rank=self.number, peers=peers)
        self._group = await arun(joining, timeout=SECONDS)
        self.swapper = await self.plane.meet(self._group, peers, lambda vote: arun(vote, timeout=SECONDS))
        self._spread = DistributedExperts(self._group, self.plane.weights, self.swapper, self.plane.counts, SECONDS)

    async def run(self, others: Sequence[Rank]) -> None:
        async def drive(vote: Steps[tuple[int, ...]]) -> tuple[int, ...]:
            return await arun(vote, timeout=SECONDS)

        def ring() -> None:
            for other in others:
                other.wake.set()

        try:
            await Lockstep(self._group, self, self.swapper, self.wake, ring, drive).run()
        finally:
            self.plane.leave()
            self._group.leave()

    # lockstep.Work
    @property
    def has_work(self) -> bool:
        return len(self.tokens) < self.want

    async def iterate(self) -> None:
        self.versions.add(self.swapper.map.version)
        if not self.has_work:
            await arun(self.runtime.model.idle(self._spread), timeout=SECONDS)
            return
        model, length = self.runtime.model, self._kv.length
        self._kv.reserve(len(PROMPT) + self.want)
        if not length:
            step = model.prefill(np.array(PROMPT, np.int32), 0, self._kv, self._spread)
            logits = await arun(step, timeout=SECONDS)
        else:
            last, at = np.array(self.tokens[-1:], np.int32), np.array([length], np.int32)
            logits = (await arun(model.decode(last, at, [self._kv], self._spread), timeout=SECONDS))[0]
        self.tokens.append(int(logits.argmax()))
        self.moved.set()


class Ranks:
    """All of them, in one epoch after the other."""

    def __init__(self, ranks: list[Rank]) -> None:
        self.ranks = ranks
        self.epoch = 0
        self.loops: list[asyncio.Task[None]] = []

    async def meet(self, ranks: list[Rank] | None = None) -> None:
        """A new epoch of these ranks."""
        await self.part()
        self.ranks = ranks or self.ranks
        self.epoch += 1
        peers = [Peer(rank.number, rank.endpoint.incarnation, rank.endpoint.uri) for rank in self.ranks]
        await asyncio.gather(*(rank.join(self.epoch, peers) for rank in self.ranks))
        others = [[other for other in self.ranks if other is not rank] for rank in self.ranks]
        self.loops = [asyncio.create_task(rank.run(rest)) for rank, rest in zip(self.ranks, others, strict=True)]

    async def part(self) -> None:
        for loop in self.loops:
            loop.cancel()
        await asyncio.gather(*self.loops, return_exceptions=True)
        self.loops = []

    def want(self, tokens: int) -> None:
        """Every rank shall have decoded so many tokens."""
        for rank in self.ranks:
            rank.want = tokens
            rank.wake.set()

    def order(self, version: int, layers: dict[int, list[list[int]]], deadline: float = 20.0) -> ExpertOrder:
        slots = tuple(LayerSlots(layer=layer, slots=tuple(map(tuple, each))) for layer, each in layers.items())
        return ExpertOrder(instance="d", epoch=self.epoch, version=version, layers=slots, deadline_seconds=deadline)

    def offer(self, order: ExpertOrder) -> None:
        for rank in self.ranks:
            rank.plane.offer(order)

    async def settled(self) -> None:
        """Waits until no change is on its way, and all have the tokens that are wanted."""

        async def all_settled() -> None:
            while any(rank.swapper.swap.target or rank.has_work for rank in self.ranks):
                await asyncio.sleep(0.001)
                for loop in self.loops:
                    if loop.done():
                        loop.result()

        await asyncio.wait_for(all_settled(), SECONDS)


@asynccontextmanager
async def running(directory: Path, count: int) -> AsyncIterator[Ranks]:
    """So many ranks that have met; their memory lies in ``directory``."""
    async with AsyncExitStack() as stack:
        ranks = [await new_rank(stack, directory, number) for number in range(count)]
        world = Ranks(ranks)
        stack.push_async_callback(world.part)
        await world.meet()
        yield world
    assert not os.listdir(directory), "memory was left"


async def new_rank(stack: AsyncExitStack, directory: Path, number: int, life: int = 0) -> Rank:
    layout = Runtime(MODEL, LIMITS).layout
    return Rank(number, stack.enter_context(Endpoint.create(directory, f"r{number}-{life}", layout)))
