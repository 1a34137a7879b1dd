"""What one request carries through its attempts: the job itself, who failed it, how long it is still tried."""

import hashlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from flowserve.frontend.metrics import FrontendMetrics
from flowserve.frontend.upstream import UpstreamLost
from flowserve.wire import GenerateRequest, Sampling, Target, TokenEvent

RETRY_SECONDS = 5.0  # from the first loss to the last new attempt
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 0.5


@dataclass(frozen=True)
class Job:
    """A request in tokens, ready to run. Its seed is fixed, so each attempt draws the same tokens."""

    request_id: str
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None  # of so many likeliest tokens; None: of none
    answers: int = 1

    def answer(self, number: int) -> "Job":
        """One answer of this job, as a job of its own."""
        sampling = self.sampling.model_copy(update={"seed": answer_seed(self.sampling.seed, number)})
        request_id = f"{self.request_id}.{number}" if number else self.request_id
        return replace(self, request_id=request_id, sampling=sampling, answers=1)


def answer_seed(seed: int, answer: int) -> int:
    """The seed of answer number ``answer`` of a request with n > 1; the first answer has the request's own."""
    if not answer:
        return seed
    digest = hashlib.blake2b(f"{seed} answer {answer}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@dataclass(frozen=True)
class Piece:
    """What is next of one of a job's answers."""

    answer: int
    event: TokenEvent
    cached_tokens: int = 0  # of the prompt, whose KV the prefill engine had


class Patience:
    """How long one request is tried again: for RETRY_SECONDS from its first loss, with growing pauses between."""

    def __init__(
        self, metrics: FrontendMetrics, clock: Callable[[], float], sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        self._metrics, self._clock, self._sleep = metrics, clock, sleep
        self._deadline: float | None = None
        self._pause = FIRST_PAUSE_SECONDS

    async def pause(self) -> bool:
        """Wait before another try; False, at once, if there shall be none."""
        now = self._clock()
        if self._deadline is None:
            self._deadline = now + RETRY_SECONDS
        if now >= self._deadline:
            return False
        await self._sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        self._metrics.retries.inc()
        return True


class Run:
    """A job under way: its attempts so far, and the instances that failed it."""

    def __init__(self, job: Job, started: float) -> None:
        self.job = job
        self.started = started
        self.attempts = 0
        self.cached_tokens = 0  # in the last attempt
        self.avoid: set[str] = set()

    def next_attempt(self) -> GenerateRequest:
        """The message to engines; each attempt has an id of its own, as the one before may still be dying."""
        self.attempts += 1
        return GenerateRequest(
            request_id=f"{self.job.request_id}-{self.attempts}",
            prompt=self.job.prompt,
            max_tokens=self.job.max_tokens,
            sampling=self.job.sampling,
            stop=self.job.stop,
            stop_token_ids=self.job.stop_token_ids,
            ignore_eos=self.job.ignore_eos,
            logprobs=self.job.logprobs,
        )

    @contextmanager
    def blame(self, target: Target) -> Iterator[None]:
        """An instance that is lost inside the context is avoided from then on."""
        try:
            yield
        except UpstreamLost:
            self.avoid.add(target.instance)
            raise
