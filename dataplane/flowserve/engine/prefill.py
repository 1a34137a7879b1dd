"""Prefill: the prompt in chunks, the first token, then the KV under a ticket until a decode engine has fetched it.

With MTP, its layer reads the prompt too, so that the decode engine can draft; the drafts are made there.
Finished prompts enter the prefix cache, if there is one: their tokens are committed and will not change any more. Only
the MTP layer's last row of a cached prefix depends on the token that followed it then; where another follows, a draft
may be worse for it, and never a token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NoReturn

import structlog

from flowserve.cache import PrefixCache
from flowserve.engine.iteration import Tally
from flowserve.engine.loading import Runtime
from flowserve.engine.role import Advance, NotNow, Refuse, as_array
from flowserve.engine.scheduler import Scheduler
from flowserve.engine.sequence import Sequence, Stage
from flowserve.model import Experts
from flowserve.output.link import FromEngine, Prefilled
from flowserve.transfer.push import Pusher
from flowserve.transfer.tickets import TicketBook
from flowserve.wire import GenerateRequest, PrefillReply, PullRequest, TransferTicket
from xccl import Steps

LATE_SECONDS = 0.1  # a timer may be early by its resolution, so it is set later than what it waits for

log = structlog.get_logger()


class Prefill:
    """The prefill role. ``origin`` is the ticket that all tickets are like, but for id and size."""

    most = 1  # one sequence's chunk fills an iteration

    def __init__(
        self,
        runtime: Runtime,
        scheduler: Scheduler,
        pusher: Pusher,
        tickets: TicketBook,
        origin: TransferTicket,
        chunk: int,
        cache: PrefixCache | None,
        tally: Tally,
        send: Callable[[FromEngine], None],
        changed: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._scheduler = scheduler
        self._pusher = pusher
        self._tickets = tickets
        self._origin = origin
        self._chunk = chunk
        self._cache = cache
        self._tally = tally
        self._send = send
        self._changed = changed

    def room(self, request: GenerateRequest) -> int:
        if request.ticket is not None:
            raise Refuse("this is a prefill engine: it gives tickets and takes none")
        if self._tickets.full:
            raise NotNow(f"{len(self._tickets)} finished prefills wait to be fetched")
        return len(request.prompt)

    def enter(self, sequence: Sequence) -> Stage:
        if self._cache is not None:
            self._tally.looked_up += len(sequence.tokens)
            self._tally.found += sequence.cached
        return Stage.RUNNING

    def step(self, batch: list[Sequence], experts: Experts) -> Steps[list[Advance]]:
        model, mtp = self._runtime.model, self._runtime.mtp
        if not batch:
            yield from model.idle(experts)
            return []
        (sequence,) = batch
        start, prompt = sequence.computed, sequence.tokens
        end = min(start + self._chunk, len(prompt))
        hidden = yield from model.read(as_array(prompt[start:end]), start, sequence.kv, experts)
        chosen = (sequence.choose(model.logits(hidden[-1:])[0]),) if end == len(prompt) else ()
        if mtp is not None:
            following = as_array([*prompt[start + 1 : end + 1], *(each.token for each in chosen)])
            mtp.read(model, hidden, following, start, sequence.kv)
        return [Advance(sequence, end - start, chosen)]

    def deliver(self, sequence: Sequence) -> None:
        if not sequence.answered:
            return
        loop = asyncio.get_running_loop()
        kv = self._scheduler.detach(sequence).kv
        if self._cache is not None:
            self._cache.insert(kv, sequence.request.prompt)
        ticket = self._origin.model_copy(update={"id": self._tickets.issue(kv, loop.time()), "tokens": kv.length})
        loop.call_later(self._tickets.lifetime + LATE_SECONDS, self._expire)
        logprobs = sequence.logprobs[0] if sequence.logprobs else None
        reply = PrefillReply(
            first_token=sequence.tokens[-1], first_logprobs=logprobs, cached_tokens=sequence.cached, ticket=ticket
        )
        self._send(Prefilled(key=sequence.key, reply=reply))
        self._changed()

    def pull(self, ticket: str, to: PullRequest) -> None:
        """Starts sending a ticket's KV. Raises NoTicket."""
        self._pusher.push(ticket, self._tickets.take(ticket), to)

    def drop(self, ticket: str) -> None:
        """Gives a ticket's blocks back. Raises NoTicket."""
        self._tickets.drop(ticket)
        self._changed()

    async def settle(self) -> NoReturn:
        while True:
            pushed = await self._pusher.completions.get()
            if pushed.error is None:
                self._tickets.sent(pushed.ticket)
            else:
                log.warning("a transfer failed", ticket=pushed.ticket, error=pushed.error)
                self._tickets.failed(pushed.ticket)
                self._expire()
            self._changed()

    def _expire(self) -> None:
        if old := self._tickets.expire(asyncio.get_running_loop().time()):
            log.info("tickets expired that nobody fetched", tickets=old)
            self._changed()
