"""Asynchronous sends and receives: post them, compute, look later which have ended.

A queue drives the steps that are posted to it, whenever it is asked. Posting runs the first step at once: a send
has then published all that fits the ring (or where its data lie), so that the receiver can work while this thread
computes; nothing polls in the meantime, as in xDeepServe's asynchronous variants.

Posts of one lane are carried out one after the other, in their order; lanes do not wait for each other. Give the
sends of a channel one lane and its receives another.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from xccl.steps import Steps, run, within


@dataclass(frozen=True)
class Completion:
    """A post that has ended: `result` is what its steps returned, `error` what they raised."""

    token: Hashable
    result: Any = None
    error: Exception | None = None


@dataclass(frozen=True)
class _Posted:
    token: Hashable
    steps: Steps[Any]


class CompletionQueue:
    """Not for several threads. Its owner polls it, and keeps the buffers of what is posted alive and unchanged."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lanes: dict[Hashable, deque[_Posted]] = {}
        self._ended: list[Completion] = []

    def __len__(self) -> int:
        """How many posts have not been handed out as completions."""
        return sum(map(len, self._lanes.values())) + len(self._ended)

    def post(self, steps: Steps[Any], token: Hashable, *, lane: Hashable, timeout: float) -> None:
        """Start `steps`, or line them up behind earlier posts of their lane; the time to wait counts from their start.

        Never raises what the steps raise: that is in their completion. xDeepServe, "asynchronous send/receive".
        """
        waiting = self._lanes.setdefault(lane, deque())
        waiting.append(_Posted(token, within(steps, timeout=timeout, clock=self._clock)))
        if len(waiting) == 1:
            self._advance(lane)

    def poll(self) -> list[Completion]:
        """Drive every lane as far as it goes without waiting; the completions since the last call, oldest first."""
        for lane in list(self._lanes):
            self._advance(lane)
        ended, self._ended = self._ended, []
        return ended

    def wait(self, *, timeout: float) -> list[Completion]:
        """Like `poll`, but wait until there is a completion; empty if nothing is posted. Raises Timeout."""
        return run(self._some(), timeout=timeout)

    def close(self) -> None:
        """Abandon what has not ended: their steps are closed, no completions come of them."""
        for lane in self._lanes.values():
            for posted in lane:
                posted.steps.close()
        self._lanes.clear()

    def _some(self) -> Steps[list[Completion]]:
        fresh = True
        while True:
            ended = self.poll()
            if ended or not self._lanes:
                return ended
            yield fresh
            fresh = False

    def _advance(self, lane: Hashable) -> None:
        waiting = self._lanes[lane]
        while waiting:
            posted = waiting[0]
            try:
                next(posted.steps)
                return
            except StopIteration as stop:
                self._ended.append(Completion(posted.token, stop.value))
            except Exception as error:
                self._ended.append(Completion(posted.token, error=error))
            waiting.popleft()
        del self._lanes[lane]
