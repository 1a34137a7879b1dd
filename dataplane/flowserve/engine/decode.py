"""Decode: fetch the KV of a finished prefill when there is room for it, then go on, one token an iteration or more."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from flowserve.engine.decoding import Decoding
from flowserve.engine.drafting import MtpDrafter
from flowserve.engine.loading import Runtime
from flowserve.engine.role import Advance, Refuse
from flowserve.engine.scheduler import Scheduler
from flowserve.engine.sequence import Chosen, Sequence, Stage
from flowserve.model import Experts
from flowserve.output.link import Failed, FromEngine, Tokens
from flowserve.transfer.pull import Pulled, Puller
from flowserve.wire import GenerateRequest
from xccl import Steps


class Decode:
    """The decode role. ``changed`` is called when blocks became free or a sequence became ready to run."""

    def __init__(
        self,
        runtime: Runtime,
        scheduler: Scheduler,
        puller: Puller,
        send: Callable[[FromEngine], None],
        changed: Callable[[], None],
    ) -> None:
        self.most = runtime.max_batch
        self._runtime = runtime
        self._scheduler = scheduler
        self._puller = puller
        self._send = send
        self._changed = changed
        self._ends = frozenset(runtime.config.eos_token_ids)
        drafter = MtpDrafter(runtime.model, runtime.mtp, runtime.drafts) if runtime.mtp else None
        self._decoding = Decoding(runtime.model, self._ends, drafter)

    def room(self, request: GenerateRequest) -> int:
        if request.ticket is None or request.first_token is None:
            raise Refuse("a decode engine needs the ticket and the first token of a prefill")
        if request.ticket.tokens != len(request.prompt):
            raise Refuse(f"the ticket holds {request.ticket.tokens} tokens, the prompt has {len(request.prompt)}")
        if request.logprobs is not None and request.first_logprobs is None:
            raise Refuse("the first token comes without the logprobs that the request asks for")
        if request.first_token >= self._runtime.config.vocab_size:
            raise Refuse(f"first_token {request.first_token} is not in the vocabulary")
        return len(request.prompt) + request.max_tokens

    def enter(self, sequence: Sequence) -> Stage:
        ticket, pool = sequence.request.ticket, self._runtime.pool
        assert ticket is not None
        self._puller.pull(sequence.key, ticket, (pool.layers, ticket.tokens, pool.width))
        return Stage.FETCHING

    def step(self, batch: list[Sequence], experts: Experts) -> Steps[list[Advance]]:
        return self._decoding.step(batch, experts)

    def deliver(self, sequence: Sequence) -> None:
        index, reason = sequence.delivered, sequence.finish_reason(self._ends)
        tokens, logprobs = sequence.tokens[len(sequence.request.prompt) + index :], sequence.logprobs[index:]
        self._send(
            Tokens(
                key=sequence.key,
                index=index,
                tokens=tuple(tokens),
                logprobs=tuple(logprobs),
                finish_reason=reason,
            )
        )
        sequence.delivered = sequence.answered
        if reason is not None:
            self._scheduler.release(sequence)
            self._changed()

    async def settle(self) -> NoReturn:
        while True:
            self._arrived(await self._puller.completions.get())

    def _arrived(self, pulled: Pulled) -> None:
        sequence = self._scheduler.find(pulled.key)
        if sequence is None:
            pass  # it was cancelled meanwhile
        elif isinstance(pulled.rows, str):
            self._send(Failed(key=pulled.key, error=pulled.rows, retryable=True))
            self._scheduler.release(sequence)
        else:
            request = sequence.request
            assert request.first_token is not None
            sequence.kv.load(pulled.rows)
            first = Chosen(request.first_token, request.first_logprobs)
            Advance(sequence, len(sequence.tokens), (first,)).commit()
            sequence.stage = Stage.RUNNING
            self.deliver(sequence)
        self._changed()
