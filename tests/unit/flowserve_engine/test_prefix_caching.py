"""A prefill engine with a prefix cache computes what one without computes, and never runs out of blocks for it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flowserve.cache import Int8BlockPool, PrefixCache, SequenceKV
from flowserve.engine.iteration import Iterations, Tally
from flowserve.engine.loading import Runtime
from flowserve.engine.prefill import Prefill
from flowserve.engine.scheduler import Scheduler
from flowserve.engine.sequence import Sequence
from flowserve.model import ExpertWeights, FloatArray, LocalExperts, Weights
from flowserve.output.link import FromEngine, Prefilled
from flowserve.transfer.tickets import TicketBook
from flowserve.wire import GenerateRequest, Limits, TransferTicket
from xccl import PeerLost, Steps

MODEL = Path(__file__).parents[3] / "examples/models/tiny-deepseek-v3"
TICKET = TransferTicket(id="t", host="h", control_port=1, incarnation="me", fabric_uri="u", tokens=2)
LIMITS = Limits(kv_blocks=12, kv_block_tokens=4, max_batch=2, prefill_chunk_tokens=16)
SHARED = tuple(3 + 5 * i % 300 for i in range(22))  # five whole blocks and two tokens


class Engine:
    """A prefill engine without ports; what it computed is ``kv``, and goes when asked for."""

    def __init__(self, runtime: Runtime, *, caching: bool, layers: list[int] | None = None) -> None:
        self.cache = PrefixCache(runtime.pool, LIMITS.kv_block_tokens) if caching else None
        self.scheduler = Scheduler(runtime.pool, LIMITS.max_batch, 8, self.cache)
        self.tally, self.sent = Tally(), list[FromEngine]()
        self.tickets = TicketBook("me", capacity=8, lifetime=30.0)
        pusher: Any = SimpleNamespace()
        self.role = Prefill(
            *(runtime, self.scheduler, pusher, self.tickets, TICKET, LIMITS.prefill_chunk_tokens),
            *(self.cache, self.tally, self.sent.append, self.changed),
        )
        self.experts = LocalExperts(ExpertWeights(Weights.open(MODEL), layers=layers))
        self.iterations = Iterations(self.scheduler, self.role, self.experts, self.tally, self.changed)

    def changed(self) -> None:
        self.scheduler.admit(self.role.enter)

    def submit(self, key: int, prompt: tuple[int, ...]) -> None:
        request = GenerateRequest(request_id="r", prompt=prompt, max_tokens=2)
        self.scheduler.submit(Sequence(key, request, SequenceKV(self.scheduler.pool), self.role.room(request)))
        self.changed()

    async def run(self, *prompts: tuple[int, ...]) -> list[tuple[Prefilled, FloatArray]]:
        """The answers to these prompts, with their KV, whose blocks are given back."""
        for key, prompt in enumerate(prompts):
            self.submit(key, prompt)
        results = []
        while self.scheduler.running:
            await self.iterations.iterate()
            for message in self.sent:
                assert isinstance(message, Prefilled)
                kv = self.tickets.take(message.reply.ticket.id)
                results.append((message, kv.export()))
                self.tickets.sent(message.reply.ticket.id)
                self.changed()
            self.sent.clear()
        return results


@pytest.fixture
def runtime() -> Runtime:
    return Runtime(MODEL, LIMITS)


async def test_tokens_and_kv_are_the_same_with_and_without(runtime: Runtime) -> None:
    engine, plain = Engine(runtime, caching=True), Engine(Runtime(MODEL, LIMITS), caching=False)
    prompts = [SHARED, (*SHARED, 9, 8, 7), (*SHARED[:12], 5, 6), SHARED[:20], (7, *SHARED)]
    for prompt, cached in zip(prompts, (0, 20, 12, 16, 0), strict=True):
        ((found, kv),) = await engine.run(prompt)
        ((expected, plain_kv),) = await plain.run(prompt)
        assert found.reply.first_token == expected.reply.first_token
        np.testing.assert_allclose(kv, plain_kv, rtol=0, atol=1e-4)
        assert (found.reply.cached_tokens, expected.reply.cached_tokens) == (cached, 0)
        assert engine.scheduler.usage == pytest.approx(0)
    assert (engine.tally.looked_up, engine.tally.found) == (sum(map(len, prompts)), 48)


async def test_an_int8_cache_finds_what_it_kept(runtime: Runtime) -> None:
    small = Runtime(MODEL, LIMITS.model_copy(update={"kv_cache_dtype": "int8", "speculative_tokens": 1}))
    assert isinstance(small.pool, Int8BlockPool)
    layers = [*small.config.moe_layers, small.config.num_hidden_layers]
    engine, plain = Engine(small, caching=True, layers=layers), Engine(runtime, caching=False)
    ((_, first),) = await engine.run(SHARED)
    ((found, kv),) = await engine.run((*SHARED, 9, 8, 7))
    ((_, exact),) = await plain.run((*SHARED, 9, 8, 7))
    assert found.reply.cached_tokens == 20
    np.testing.assert_array_equal(kv[:-1, :20], first[:-1, :20])
    assert 0 < np.abs(kv[:-1] - exact).max() < 0.1 * np.abs(exact).max()


async def test_what_is_cached_makes_way_for_those_who_wait(runtime: Runtime) -> None:
    engine = Engine(runtime, caching=True)
    prompts = [tuple(range(start, start + 30)) for start in range(3, 183, 30)]  # eight of twelve blocks each
    assert len(await engine.run(*prompts)) == len(prompts)
    assert runtime.pool.usage > engine.scheduler.usage == pytest.approx(0)
    ((last, _),) = await engine.run(prompts[-1])
    assert last.reply.cached_tokens == 28


async def test_a_prompt_that_does_not_fit_beside_another_keeps_nothing_while_it_waits(runtime: Runtime) -> None:
    engine = Engine(runtime, caching=True)
    await engine.run(SHARED)
    engine.submit(1, tuple(range(50, 70)))
    engine.submit(2, (*SHARED, *range(100, 120)))  # eleven blocks, five of them cached
    assert (engine.scheduler.running, engine.scheduler.waiting) == (1, 1)
    assert engine.scheduler.usage == pytest.approx(5 / 12)
    engine.scheduler.cancel(1)
    engine.changed()
    assert (engine.scheduler.running, engine.scheduler.waiting) == (1, 0)
    engine.scheduler.cancel(2)
    assert engine.scheduler.usage == pytest.approx(0)


async def test_what_a_broken_iteration_wrote_does_not_enter(runtime: Runtime) -> None:
    engine = Engine(runtime, caching=True)

    def broken(layer: int, x: FloatArray, expert_ids: Any, weights: FloatArray) -> Steps[FloatArray]:
        if layer == runtime.config.moe_layers[-1]:
            raise PeerLost(1, "gone")
        return (yield from engine.experts(layer, x, expert_ids, weights))

    engine.submit(1, SHARED[:9])
    engine.iterations.experts = broken
    with pytest.raises(PeerLost):
        await engine.iterations.iterate()
    assert engine.cache is not None
    assert len(engine.cache) == 0
    engine.iterations.experts = engine.experts
    await engine.iterations.iterate()
    assert len(engine.cache) == 2
