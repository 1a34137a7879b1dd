"""Dirty keys waiting for a reconciler: each key at most once in the queue, never in two hands at once.

A key marked while it is being worked on runs again afterwards, so no change is lost; marks in between fold into one
run, so a storm of events costs one. A failing key backs off exponentially and blocks nobody. Keys are served in
the order they became due (a heap), so none starves; one whose pass was long rests before the next, so that a key with
an endless stream of events leaves room to the others. The clock is the event loop's.
"""

import asyncio
import heapq
import itertools
from dataclasses import dataclass, field
from typing import NamedTuple

FIRST_BACKOFF_SECONDS = 0.25
LAST_BACKOFF_SECONDS = 30.0


class Key(NamedTuple):
    """An object to reconcile."""

    kind: str
    namespace: str
    name: str


@dataclass
class _State:
    due: float | None = None  # when it should run; None while nothing asks for it
    running: bool = False
    failures: int = 0
    rests_until: float = 0.0
    news: bool = True  # whether anything but its own timer asks for the run


@dataclass
class WorkQueue:
    """``mark`` from anywhere in the loop's thread; workers ``await take()`` and give the key back with ``done``."""

    _states: dict[Key, _State] = field(default_factory=dict)
    _heap: list[tuple[float, int, Key]] = field(default_factory=list)
    _order: "itertools.count[int]" = field(default_factory=itertools.count)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __len__(self) -> int:
        return sum(state.due is not None for state in self._states.values())

    def overdue(self, seconds: float = 1.0) -> bool:
        """Whether a key has been due for longer than ``seconds``, or is in a worker's hands."""
        limit = asyncio.get_running_loop().time() - seconds
        return any(state.running or (state.due is not None and state.due < limit) for state in self._states.values())

    def mark(self, key: Key, after: float = 0.0) -> None:
        """Asks for a run in ``after`` seconds at the latest; an earlier wish stays."""
        self._schedule(key, after, news=True)

    def _schedule(self, key: Key, after: float, *, news: bool) -> None:
        state = self._states.setdefault(key, _State())
        state.news |= news
        due = max(asyncio.get_running_loop().time() + after, state.rests_until)
        if state.due is not None and state.due <= due:
            return
        state.due = due
        if not state.running:
            heapq.heappush(self._heap, (due, next(self._order), key))
            self._changed.set()

    async def take(self) -> tuple[Key, bool]:
        """Waits for the key that is due first and hands it out, and whether anything but its own timer asked."""
        loop = asyncio.get_running_loop()
        while True:
            while self._heap and not self._valid(*self._heap[0]):
                heapq.heappop(self._heap)
            wait = self._heap[0][0] - loop.time() if self._heap else None
            if wait is not None and wait <= 0:
                key = heapq.heappop(self._heap)[2]
                state = self._states[key]
                news, state.news = state.news, False
                state.due, state.running = None, True
                return key, news
            self._changed.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def done(self, key: Key, *, failed: bool = False, again_after: float | None = None, rest: float = 0.0) -> None:
        """Gives a key back. A failure asks for a later run by itself; ``rest`` seconds pass before any other."""
        state = self._states[key]
        state.running = False
        state.failures = state.failures + 1 if failed else 0
        if failed:
            again_after = min(FIRST_BACKOFF_SECONDS * 2 ** (state.failures - 1), LAST_BACKOFF_SECONDS)
        due, state.due = state.due, None
        loop = asyncio.get_running_loop()
        loop_time = loop.time()
        state.rests_until = loop_time + rest
        waits = [max(0.0, due - loop_time)] if due is not None and not failed else []
        waits += [again_after] if again_after is not None else []
        if waits:
            self._schedule(key, min(waits), news=failed)
        elif rest:  # then it is forgotten: most objects never come back
            loop.call_at(state.rests_until, self._forget, key, state.rests_until)
        else:
            del self._states[key]

    def _forget(self, key: Key, rested: float) -> None:
        """Drops a key that nothing asks for, unless it has run again and rests anew."""
        state = self._states.get(key)
        if state is not None and not state.running and state.due is None and state.rests_until == rested:
            del self._states[key]

    def _valid(self, due: float, _order: int, key: Key) -> bool:
        state = self._states.get(key)
        return state is not None and not state.running and state.due == due
