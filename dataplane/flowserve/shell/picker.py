"""Which rank takes the next request: the one with the fewest sequences, of those the one with the most free KV.

A status is as old as the last heartbeat, and a burst of requests is faster than that. So what was sent to a rank since
its last answer is counted on top of what it reported, and so is what was sent so shortly before that it may still
have been on its way. Pure: the clock is given.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence

from flowserve.shell.heartbeats import Serving
from flowserve.wire import Member

TRAVEL_SECONDS = 0.1  # from a dispatch until the engine counts the request


class Picker:
    """Remembers what it has sent where, until the rank's own reports include it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sent: defaultdict[str, deque[float]] = defaultdict(deque)

    def pick(self, candidates: Sequence[Serving]) -> Member | None:
        """One of ``candidates``, or None if there are none."""
        if not candidates:
            return None
        chosen = min(candidates, key=self._load).member
        self._sent[chosen.incarnation].append(self._clock())
        return chosen

    def forget(self, incarnations: set[str]) -> None:
        """Drops what was sent to engines that are not among ``incarnations``."""
        for gone in self._sent.keys() - incarnations:
            del self._sent[gone]

    def _load(self, candidate: Serving) -> tuple[int, float, int]:
        sent = self._sent[candidate.member.incarnation]
        while sent and sent[0] <= candidate.heard - TRAVEL_SECONDS:
            sent.popleft()
        status = candidate.status
        return status.running + status.waiting + len(sent), status.kv_usage, candidate.member.rank
