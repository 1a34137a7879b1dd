"""One request's path: prefill here, decode there, and what happens when one of them fails.

    pick prefill → shell dispatch → /v1/prefill → pick decode → shell dispatch → /v1/generate → TokenEvents

Invariants. Until the caller has received a token, a lost peer only costs another attempt, on other instances where
there are any, for a few seconds; after that the loss is final, because a second attempt would repeat tokens. A caller
that wants the answer whole receives nothing before its end, so for it every loss can be repaired. The answers of a
request with n > 1 go this path side by side, each on its own; the first that fails ends all. Whatever way an attempt
is left (error, cancellation, the client gone), its stream is closed and its ticket dropped.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import structlog

from flowserve.frontend import errors
from flowserve.frontend.interleaving import interleaved
from flowserve.frontend.job import Job, Patience, Piece, Run
from flowserve.frontend.metrics import FrontendMetrics, Stopwatch
from flowserve.frontend.routing import NoTarget, Router
from flowserve.frontend.upstream import Upstream, UpstreamLost, UpstreamRefused
from flowserve.wire import DispatchReply, GenerateRequest, Target, TokenEvent

MAX_RUNNING = 1024  # answers in flight in one frontend

log = structlog.get_logger()


class Generation:
    """Runs jobs. ``clock`` and ``sleep`` are seconds, monotonic."""

    def __init__(
        self,
        router: Router,
        upstream: Upstream,
        metrics: FrontendMetrics,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._router = router
        self._upstream = upstream
        self._metrics = metrics
        self._clock = clock
        self._sleep = sleep

    async def pieces(self, job: Job, *, whole: bool) -> AsyncGenerator[Piece, None]:
        """The answers, as they come; with ``whole``, each only once it is complete. Raises RequestError."""
        if self._metrics.running + job.answers > MAX_RUNNING:
            raise errors.unavailable("overloaded", f"{self._metrics.running} answers are running; try again.")
        self._metrics.running += job.answers
        try:
            runs = [Run(job.answer(number), self._clock()) for number in range(job.answers)]
            async with aclosing(interleaved([self._retried(run, whole=whole) for run in runs])) as events:
                async for number, event in events:
                    yield Piece(number, event, runs[number].cached_tokens)
        finally:
            self._metrics.running -= job.answers

    async def _retried(self, run: Run, *, whole: bool) -> AsyncGenerator[TokenEvent, None]:
        patience = Patience(self._metrics, self._clock, self._sleep)
        while True:
            sent = False
            try:
                async with aclosing(self._attempt(run, patience)) as attempt:
                    if whole:
                        held = [event async for event in attempt]
                        for event in held:
                            yield event
                        return
                    async for event in attempt:
                        sent = True
                        yield event
                    return
            except UpstreamLost as error:
                log.warning("attempt lost", attempt=run.attempts, tokens_sent=sent, error=str(error))
                if sent or not await patience.pause():
                    raise errors.unavailable("engine_lost", "The engine was lost; send the request again.") from error
            except UpstreamRefused as error:
                log.error("attempt refused", attempt=run.attempts, error=str(error))
                raise errors.internal("The engine could not process the request; see the server's log.") from error
            except NoTarget as error:
                self._metrics.unserved.inc()
                raise errors.unavailable(f"no_ready_{error.role.lower()}", f"Not now: {error}; try again.") from error

    async def _attempt(self, run: Run, patience: Patience) -> AsyncGenerator[TokenEvent, None]:
        job = run.job
        prefill = self._router.pick("Prefill", run.avoid)
        request = run.next_attempt()
        stopwatch = Stopwatch(self._metrics, self._clock, run.started)
        with self._router.hold(prefill), run.blame(prefill):
            group = await self._upstream.dispatch(prefill, request.request_id, len(job.prompt))
            reply = await self._upstream.prefill(group, request)
            run.cached_tokens = reply.cached_tokens
        finished = False
        try:
            first = {"first_token": reply.first_token, "first_logprobs": reply.first_logprobs}
            request = request.model_copy(update={"ticket": reply.ticket, **first})
            decode, group = await self._decode_group(run, request, prefill.revision, patience)
            with self._router.hold(decode), run.blame(decode):
                async with aclosing(self._upstream.generate(group, request)) as stream:
                    async for event in stream:
                        if event.error is not None:
                            raise (UpstreamLost if event.retryable else UpstreamRefused)(event.error)
                        stopwatch.saw(event, prompt_tokens=len(job.prompt))
                        finished = event.finish_reason is not None
                        yield event
        finally:
            if not finished:
                self._upstream.drop(reply.ticket)

    async def _decode_group(
        self, run: Run, request: GenerateRequest, revision: str, patience: Patience
    ) -> tuple[Target, DispatchReply]:
        """A DP group that takes the request. One that is refused leaves the ticket as it was, so the prefill stands."""
        positions = len(request.prompt) + request.max_tokens
        while True:
            decode = self._router.pick("Decode", run.avoid, revision)
            try:
                with run.blame(decode):
                    return decode, await self._upstream.dispatch(decode, request.request_id, positions)
            except UpstreamLost:
                if not await patience.pause():
                    raise
