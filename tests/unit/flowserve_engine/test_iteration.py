"""An iteration counts whole or not at all, and leaves no place empty that somebody waits for."""

from __future__ import annotations

import asyncio
from typing import NoReturn

import pytest

from flowserve.cache import BlockPool, SequenceKV
from flowserve.engine.iteration import Iterations, Tally
from flowserve.engine.role import Advance
from flowserve.engine.scheduler import Scheduler
from flowserve.engine.sequence import Chosen, Sequence, Stage
from flowserve.model import Experts, FloatArray, IntArray
from flowserve.wire import GenerateRequest
from xccl import PeerLost, Steps


def no_experts(layer: int, x: FloatArray, expert_ids: IntArray, weights: FloatArray) -> Steps[FloatArray]:
    raise NotImplementedError


class FakeRole:
    """Writes one position, waits once, and then fails or not."""

    most = 8

    def __init__(self) -> None:
        self.waits = asyncio.Event()
        self.goes_on = False
        self.failure: Exception | None = None
        self.delivered: list[int] = []

    def room(self, request: GenerateRequest) -> int:
        return len(request.prompt) + request.max_tokens

    def enter(self, sequence: Sequence, /) -> Stage:
        return Stage.RUNNING

    def step(self, batch: list[Sequence], experts: Experts) -> Steps[list[Advance]]:
        for sequence in batch:
            sequence.kv.append(1)
        self.waits.set()
        while not self.goes_on:
            yield True
        if self.failure is not None:
            raise self.failure
        return [Advance(sequence, 1, (Chosen(7),)) for sequence in batch]

    def deliver(self, sequence: Sequence) -> None:
        self.delivered.append(sequence.key)

    async def settle(self) -> NoReturn:
        raise NotImplementedError


class Bench:
    """An engine's middle: a scheduler with one place, and iterations over it."""

    def __init__(self) -> None:
        self.role = FakeRole()
        self.pool = BlockPool(4, 4, layers=1, width=1)
        self.scheduler = Scheduler(self.pool, max_batch=1, max_waiting=4)
        self.tally = Tally()
        self.work = Iterations(self.scheduler, self.role, no_experts, self.tally, self.admit)

    def admit(self) -> None:
        self.scheduler.admit(self.role.enter)

    def submit(self, key: int) -> Sequence:
        request = GenerateRequest(request_id="r", prompt=(1, 2), max_tokens=2)
        sequence = Sequence(key, request, SequenceKV(self.pool), self.role.room(request))
        self.scheduler.submit(sequence)
        self.admit()
        return sequence


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def started(bench: Bench) -> asyncio.Task[None]:
    """An iteration that waits for a peer."""
    task = asyncio.create_task(bench.work.iterate())
    await bench.role.waits.wait()
    return task


async def test_what_was_computed_is_committed_and_delivered(bench: Bench) -> None:
    sequence = bench.submit(1)
    bench.role.goes_on = True
    await bench.work.iterate()
    assert (sequence.computed, sequence.kv.length, sequence.tokens) == (1, 1, [1, 2, 7])
    assert bench.role.delivered == [1]
    assert (bench.tally.iterations, bench.tally.tokens) == (1, 1)


async def test_a_lost_peer_undoes_all_of_it(bench: Bench) -> None:
    sequence = bench.submit(1)
    iteration = await started(bench)
    bench.role.failure, bench.role.goes_on = PeerLost(1, "gone"), True
    with pytest.raises(PeerLost):
        await iteration
    assert (sequence.computed, sequence.kv.length, sequence.tokens) == (0, 0, [1, 2])
    assert (bench.role.delivered, bench.tally.iterations) == ([], 0)
    assert bench.work.has_work


async def test_so_does_a_newer_epoch(bench: Bench) -> None:
    sequence = bench.submit(1)
    iteration = await started(bench)
    iteration.cancel()
    with pytest.raises(asyncio.CancelledError):
        await iteration
    assert (sequence.kv.length, sequence.tokens) == (0, [1, 2])


@pytest.mark.parametrize("failure", [None, PeerLost(1, "gone")])
async def test_who_waits_gets_the_place_of_one_cancelled_in_flight(bench: Bench, failure: Exception | None) -> None:
    bench.submit(1)
    waiting = bench.submit(2)
    iteration = await started(bench)
    bench.scheduler.cancel(1)
    assert waiting.stage is Stage.WAITING
    bench.role.failure, bench.role.goes_on = failure, True
    await asyncio.gather(iteration, return_exceptions=True)
    assert waiting.stage is Stage.RUNNING
    assert bench.role.delivered == []
