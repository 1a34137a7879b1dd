"""Which rank takes the next request: the one with the fewest sequences, of those the one with the most free KV.

A status is as old as the last heartbeat, and a burst of requests is faster than that, so what was sent to a rank in
the last ``window`` seconds is counted on top of what it reported. Pure: the clock is given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from flowserve.wire import EngineStatus, Member


class Picker:
    """Remembers what it has sent where, for ``window`` seconds."""

    def __init__(self, clock: Callable[[], float], window: float) -> None:
        self._clock = clock
        self._window = window
        self._sent: deque[tuple[float, str]] = deque()

    def pick(self, candidates: Sequence[tuple[Member, EngineStatus]]) -> Member | None:
        """One of ``candidates``, or None if there are none."""
        if not candidates:
            return None
        now = self._clock()
        while self._sent and self._sent[0][0] <= now - self._window:
            self._sent.popleft()

        def load(candidate: tuple[Member, EngineStatus]) -> tuple[int, float, int]:
            member, status = candidate
            on_the_way = sum(incarnation == member.incarnation for _, incarnation in self._sent)
            return status.running + status.waiting + on_the_way, status.kv_usage, member.rank

        member, _ = min(candidates, key=load)
        self._sent.append((now, member.incarnation))
        return member
