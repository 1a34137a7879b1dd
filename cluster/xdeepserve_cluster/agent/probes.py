"""Probes: when a container counts as started, alive and ready. A pure counter, and a thin loop around it.

A verdict turns after `successThreshold` good or `failureThreshold` bad results in a row. While nothing good was seen,
readiness and startup are looked at every 200 ms for the first 30 s, beside the regular looks: a container that needs
2 s to start need not wait for its period to end. Such an extra look can only bring good news, failures in it do not
count, so thresholds keep their meaning.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from xdeepserve_operator.runtime.kube import Object

QUICK_PERIOD_S = 0.2
QUICK_FOR_S = 30.0

Look = Callable[[], Awaitable[str | None]]
"""Takes one look; returns what was wrong, or None. Never raises, never takes longer than the probe's timeout."""


@dataclass(frozen=True)
class Timing:
    """When to look, in seconds, and how many results in a row turn the verdict."""

    initial_delay: float
    period: float
    successes: int
    failures: int


def timing(probe: Object) -> Timing:
    """A probe's timing with the API's defaults."""
    return Timing(
        initial_delay=float(probe.get("initialDelaySeconds") or 0),
        period=float(probe.get("periodSeconds") or 10),
        successes=int(probe.get("successThreshold") or 1),
        failures=int(probe.get("failureThreshold") or 3),
    )


@dataclass
class Counter:
    """Results in a row; `good` is the verdict so far."""

    timing: Timing
    good: bool
    _row: int = 0
    _last: bool | None = None

    def observe(self, ok: bool) -> bool | None:
        """Counts a result; returns the verdict when enough of them stand in a row, else None."""
        self._row = self._row + 1 if ok is self._last else 1
        self._last = ok
        if self._row < (self.timing.successes if ok else self.timing.failures):
            return None
        self.good = ok
        return ok


async def watch(
    counter: Counter, look: Look, report: Callable[[bool, str], None], *, until_good: bool = False, quick: bool = True
) -> None:
    """Looks for ever, or until the verdict is good, and reports each verdict with the last problem."""
    rule, loop = counter.timing, asyncio.get_running_loop()
    await asyncio.sleep(rule.initial_delay)
    regular = loop.time()
    quick_until = regular + QUICK_FOR_S if quick and rule.successes == 1 else regular
    while True:
        started = loop.time()
        problem = await look()
        due = started >= regular
        if due:
            regular = started + rule.period
        if due or problem is None:
            verdict = counter.observe(problem is None)
            if verdict is not None:
                report(verdict, problem or "")
            if verdict and until_good:
                return
        if counter.good:
            quick_until = started
        wanted = min(regular, started + QUICK_PERIOD_S) if started < quick_until else regular
        await asyncio.sleep(max(0.0, wanted - loop.time()))
