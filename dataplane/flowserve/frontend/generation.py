"""One request's path: prefill here, decode there, and what happens when one of them fails.

    pick (prefill, decode) → shell dispatch → /v1/prefill → shell dispatch → /v1/generate → TokenEvents

Invariants. Until the caller has received a token, a lost peer only costs another attempt, on other instances where
there are any, for a few seconds; after that the loss is final, because a second attempt would repeat tokens. A caller
that wants the answer whole receives nothing before its end, so for it every loss can be repaired. Whatever way
an attempt is left (error, cancellation, the client gone), its stream is closed and its ticket dropped.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass

import structlog

from flowserve.frontend import errors
from flowserve.frontend.metrics import FrontendMetrics, Stopwatch
from flowserve.frontend.routing import NoTarget, Router
from flowserve.frontend.upstream import Upstream, UpstreamLost, UpstreamRefused
from flowserve.wire import GenerateRequest, Sampling, Target, TokenEvent

MAX_RUNNING = 1024  # requests in flight in one frontend
RETRY_SECONDS = 5.0  # from the first loss to the last new attempt
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 0.5

log = structlog.get_logger()


@dataclass(frozen=True)
class Job:
    """A request in tokens, ready to run. Its seed is fixed, so each attempt draws the same tokens."""

    request_id: str
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False

    def attempt(self, number: int) -> GenerateRequest:
        """The message to engines; each attempt has an id of its own, as the one before may still be dying."""
        return GenerateRequest(
            request_id=f"{self.request_id}-{number}",
            prompt=self.prompt,
            max_tokens=self.max_tokens,
            sampling=self.sampling,
            stop=self.stop,
            ignore_eos=self.ignore_eos,
        )


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

    async def events(self, job: Job, *, whole: bool) -> AsyncGenerator[TokenEvent, None]:
        """The answer, event by event; with ``whole``, only once it is complete. Raises RequestError."""
        if self._metrics.running.value >= MAX_RUNNING:
            raise errors.unavailable("overloaded", f"{MAX_RUNNING} requests are running already; try again.")
        self._metrics.running.value += 1
        try:
            async with aclosing(self._retried(job, whole=whole)) as events:
                async for event in events:
                    yield event
        finally:
            self._metrics.running.value -= 1

    async def _retried(self, job: Job, *, whole: bool) -> AsyncGenerator[TokenEvent, None]:
        started = self._clock()
        avoid: set[str] = set()
        deadline: float | None = None
        number = 0
        while True:
            sent = False
            try:
                async with aclosing(self._attempt(job, number, avoid, started)) as attempt:
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
                log.warning("attempt lost", attempt=number, tokens_sent=sent, error=str(error))
                deadline = deadline or self._clock() + RETRY_SECONDS
                if sent or self._clock() >= deadline:
                    raise errors.unavailable("engine_lost", "The engine was lost; send the request again.") from error
            except UpstreamRefused as error:
                log.error("attempt refused", attempt=number, error=str(error))
                raise errors.internal("The engine could not process the request; see the server's log.") from error
            except NoTarget as error:
                raise errors.unavailable(f"no_ready_{error.role.lower()}", f"Not now: {error}; try again.") from error
            await self._sleep(min(FIRST_PAUSE_SECONDS * 2**number, LONGEST_PAUSE_SECONDS))
            self._metrics.retries.add()
            number += 1

    async def _attempt(
        self, job: Job, number: int, avoid: set[str], started: float
    ) -> AsyncGenerator[TokenEvent, None]:
        stopwatch = Stopwatch(self._metrics, self._clock, started)
        prefill, decode = self._router.pick(avoid)
        request = job.attempt(number)
        with self._router.hold(decode):
            with self._router.hold(prefill), _blame(prefill, avoid):
                group = await self._upstream.dispatch(prefill, request.request_id, len(job.prompt))
                reply = await self._upstream.prefill(group, request)
            pulled = False
            try:
                with _blame(decode, avoid):
                    positions = len(job.prompt) + job.max_tokens
                    group = await self._upstream.dispatch(decode, request.request_id, positions)
                    request = request.model_copy(update={"ticket": reply.ticket, "first_token": reply.first_token})
                    async with aclosing(self._upstream.generate(group, request)) as stream:
                        async for event in stream:
                            if event.error is not None:
                                raise (UpstreamLost if event.retryable else UpstreamRefused)(event.error)
                            stopwatch.saw(event, prompt_tokens=len(job.prompt))
                            pulled = event.finish_reason is not None
                            yield event
            finally:
                if not pulled:
                    self._upstream.drop(reply.ticket)


@contextmanager
def _blame(target: Target, avoid: set[str]) -> Iterator[None]:
    try:
        yield
    except UpstreamLost:
        avoid.add(target.instance)
        raise
