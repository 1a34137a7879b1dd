"""What a prefill engine does with finished prompts, and a decode engine with KV that arrives or does not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flowserve.cache import SequenceKV
from flowserve.engine.decode import Decode
from flowserve.engine.iteration import Tally
from flowserve.engine.loading import Runtime
from flowserve.engine.prefill import Prefill
from flowserve.engine.role import NotNow, Refuse
from flowserve.engine.scheduler import Scheduler
from flowserve.engine.sequence import Chosen, Sequence, Stage
from flowserve.output.link import Failed, FromEngine, Prefilled, Tokens
from flowserve.transfer.pull import Pulled
from flowserve.transfer.push import Pushed
from flowserve.transfer.tickets import NoTicket, TicketBook
from flowserve.wire import GenerateRequest, Limits, Logprobs, PullRequest, TransferTicket

MODEL = Path(__file__).parents[3] / "examples/models/tiny-deepseek-v3"
TICKET = TransferTicket(id="t", host="h", control_port=1, incarnation="me", fabric_uri="u", tokens=2)
WISH = PullRequest(host="h", incarnation="peer", fabric_uri="u", event=1)
PROMPT = (5, 6)


class Bench:
    """A role between a scheduler and an output process that only listens; transfers are played by the test."""

    def __init__(self, runtime: Runtime, lifetime: float = 30.0) -> None:
        self.runtime = runtime
        self.scheduler = Scheduler(runtime.pool, max_batch=2, max_waiting=2)
        self.sent: asyncio.Queue[FromEngine] = asyncio.Queue()
        self.changes = asyncio.Semaphore(0)
        self.asked: list[tuple[Any, ...]] = []
        self.transfers: Any = SimpleNamespace(completions=asyncio.Queue(), push=self._asked, pull=self._asked)
        self.tickets = TicketBook("me", capacity=1, lifetime=lifetime)
        output = self.sent.put_nowait, self.changes.release
        common = runtime, self.scheduler, self.transfers
        self.prefill = Prefill(*common, self.tickets, TICKET, 16, None, Tally(), *output)
        self.decode = Decode(*common, *output)

    def _asked(self, *arguments: Any) -> None:
        self.asked.append(arguments)

    def admitted(self, role: Prefill | Decode, **changes: Any) -> Sequence:
        request = GenerateRequest(request_id="r", prompt=PROMPT, max_tokens=3).model_copy(update=changes)
        sequence = Sequence(1, request, SequenceKV(self.runtime.pool), role.room(request))
        self.scheduler.submit(sequence)
        assert self.scheduler.admit(role.enter) == [sequence]
        return sequence

    def finished(self) -> TransferTicket:
        """A prompt that was computed: its ticket."""
        sequence = self.admitted(self.prefill)
        sequence.kv.append(len(PROMPT))
        sequence.computed = len(PROMPT)
        sequence.add(Chosen(9, Logprobs(chosen=-0.5)))
        self.prefill.deliver(sequence)
        reply = self.sent.get_nowait()
        assert isinstance(reply, Prefilled)
        assert (reply.reply.first_token, reply.reply.ticket.tokens) == (9, len(PROMPT))
        assert reply.reply.first_logprobs == Logprobs(chosen=-0.5)
        return reply.reply.ticket

    async def complete(self, role: Prefill | Decode, completion: Pushed | Pulled) -> None:
        """The role hears of a completion."""
        settling = asyncio.create_task(role.settle())
        while not self.changes.locked():
            await self.changes.acquire()
        self.transfers.completions.put_nowait(completion)
        await self.changes.acquire()
        settling.cancel()

    @property
    def usage(self) -> float:
        return self.runtime.pool.usage


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    return Runtime(MODEL, Limits(kv_blocks=8, kv_block_tokens=16, max_batch=2, prefill_chunk_tokens=16))


@pytest.fixture
def bench(runtime: Runtime) -> Bench:
    return Bench(runtime)


async def test_blocks_are_kept_until_the_receiver_has_all_of_them(bench: Bench) -> None:
    ticket = bench.finished()
    bench.prefill.pull(ticket.id, WISH)
    ((pulled, kv, to),) = bench.asked
    assert (pulled, kv.length, to) == (ticket.id, len(PROMPT), WISH)
    assert bench.usage > 0
    await bench.complete(bench.prefill, Pushed(ticket.id, None))
    assert bench.usage == 0


async def test_a_failed_sending_may_be_asked_for_again(bench: Bench) -> None:
    ticket = bench.finished()
    bench.prefill.pull(ticket.id, WISH)
    await bench.complete(bench.prefill, Pushed(ticket.id, "the receiver is gone"))
    bench.prefill.pull(ticket.id, WISH)
    await bench.complete(bench.prefill, Pushed(ticket.id, None))
    assert bench.usage == 0


async def test_tickets_that_nobody_fetches_expire(runtime: Runtime) -> None:
    bench = Bench(runtime, lifetime=0.01)
    ticket = bench.finished()
    while bench.usage:
        await asyncio.wait_for(bench.changes.acquire(), 5)
    with pytest.raises(NoTicket):
        bench.prefill.pull(ticket.id, WISH)


async def test_no_prompt_is_taken_while_all_tickets_are_out(bench: Bench) -> None:
    ticket = bench.finished()
    with pytest.raises(NotNow):
        bench.admitted(bench.prefill)
    bench.prefill.drop(ticket.id)
    bench.admitted(bench.prefill)
    bench.scheduler.cancel(1)


async def test_a_prefill_engine_takes_no_tickets(bench: Bench) -> None:
    with pytest.raises(Refuse):
        bench.admitted(bench.prefill, ticket=TICKET)


async def test_kv_that_arrives_makes_the_sequence_run(bench: Bench) -> None:
    sequence = bench.admitted(bench.decode, ticket=TICKET, first_token=9)
    ((key, ticket, shape),) = bench.asked
    assert (key, ticket, sequence.stage) == (1, TICKET, Stage.FETCHING)
    rows = np.ones(shape, np.float32)
    await bench.complete(bench.decode, Pulled(1, rows))
    assert (sequence.stage, sequence.computed, sequence.tokens) == (Stage.RUNNING, 2, [*PROMPT, 9])
    np.testing.assert_array_equal(sequence.kv.export(), rows)
    assert bench.sent.get_nowait() == Tokens(key=1, index=0, tokens=(9,))
    bench.scheduler.cancel(1)


async def test_logprobs_go_with_their_tokens(bench: Bench) -> None:
    asked = {"ticket": TICKET, "first_token": 9, "logprobs": 2}
    with pytest.raises(Refuse, match="without the logprobs"):
        bench.admitted(bench.decode, **asked)
    sequence = bench.admitted(bench.decode, **asked, first_logprobs=Logprobs(chosen=-0.5))
    await bench.complete(bench.decode, Pulled(1, np.ones(bench.asked[0][2], np.float32)))
    assert bench.sent.get_nowait() == Tokens(key=1, index=0, tokens=(9,), logprobs=(Logprobs(chosen=-0.5),))
    logits = np.log(np.array([0.1, 0.6, 0.3], np.float32))
    sequence.add(sequence.choose(logits))
    bench.decode.deliver(sequence)
    message = bench.sent.get_nowait()
    assert isinstance(message, Tokens)
    (found,) = message.logprobs
    assert found.chosen == pytest.approx(logits[message.tokens[0]], rel=1e-5)
    assert [token for token, _ in found.best] == [1, 2]


@pytest.mark.parametrize(("changes", "reason"), [({"max_tokens": 1}, "length"), ({"first_token": 1}, "stop")])
async def test_an_answer_may_end_with_its_first_token(bench: Bench, changes: dict[str, int], reason: str) -> None:
    assert 1 in bench.runtime.config.eos_token_ids
    bench.admitted(bench.decode, **{"ticket": TICKET, "first_token": 9, **changes})
    await bench.complete(bench.decode, Pulled(1, np.ones(bench.asked[0][2], np.float32)))
    message = bench.sent.get_nowait()
    assert isinstance(message, Tokens)
    assert message.finish_reason == reason
    assert bench.usage == 0


async def test_kv_that_does_not_arrive_ends_its_sequence_alone(bench: Bench) -> None:
    bench.admitted(bench.decode, ticket=TICKET, first_token=9)
    await bench.complete(bench.decode, Pulled(1, "expired"))
    assert bench.sent.get_nowait() == Failed(key=1, error="expired", retryable=True)
    assert bench.usage == 0


async def test_kv_for_a_cancelled_sequence_is_let_go(bench: Bench) -> None:
    bench.admitted(bench.decode, ticket=TICKET, first_token=9)
    bench.scheduler.cancel(1)
    assert bench.usage == 0
    await bench.complete(bench.decode, Pulled(1, np.ones(bench.asked[0][2], np.float32)))
    assert bench.sent.empty()
    assert bench.usage == 0
