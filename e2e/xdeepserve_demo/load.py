"""Completions that keep coming while hardware breaks: each worker asks, checks, and asks again after an error.

A worker behaves as a good client: a retryable error is tried again after a short pause, with a new request. What is
judged is every stream by itself: its tokens must be the expected ones, or a prefix of them followed by a clear error.
"""

import asyncio
import time
from dataclasses import dataclass, field

import aiohttp

from xdeepserve_demo.client import StreamResult, stream_chat

RETRY_SECONDS = 0.1


@dataclass(frozen=True)
class Attempt:
    """One request: which prompt, when it began and ended (``time.monotonic``), and how."""

    prompt: str
    began: float
    ended: float
    result: StreamResult


@dataclass
class Load:
    """``workers`` streams at a time against one endpoint, until ``stop``."""

    endpoint: str
    model: str
    prompts: list[str]
    tokens: int
    workers: int
    attempts: list[Attempt] = field(default_factory=list)
    _finished: asyncio.Event = field(default_factory=asyncio.Event)
    _stopping: bool = False

    async def run(self) -> None:
        """Runs until ``stop`` was called and the streams then running have ended."""
        async with aiohttp.ClientSession() as http:
            await asyncio.gather(*(self._work(http, number) for number in range(self.workers)))

    def stop(self) -> None:
        """Lets no new request begin."""
        self._stopping = True

    async def first_success_after(self, moment: float, timeout: float) -> Attempt:
        """The first request begun after ``moment`` that finished right."""
        async with asyncio.timeout(timeout):
            while True:
                for attempt in self.attempts:
                    if attempt.began >= moment and attempt.result.error is None:
                        return attempt
                self._finished.clear()
                await self._finished.wait()

    async def _work(self, http: aiohttp.ClientSession, number: int) -> None:
        turn = number
        while not self._stopping:
            prompt = self.prompts[turn % len(self.prompts)]
            began = time.monotonic()
            result = await stream_chat(self.endpoint, self.model, prompt, self.tokens, session=http, ignore_eos=True)
            self.attempts.append(Attempt(prompt, began, time.monotonic(), result))
            self._finished.set()
            if result.error is None:
                turn += self.workers
            else:
                await asyncio.sleep(RETRY_SECONDS)
