"""Runs the reconcilers: changes mark keys, workers take keys, a failure backs off and blocks nobody else.

Only a leader starts workers, and they are cancelled the moment the Lease is lost; the store is kept warm all the time,
so a new leader starts from a full picture. ``progress_age`` feeds the liveness probe: it grows only while keys are due
and no worker finishes one.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, runtime_checkable

import structlog

from xdeepserve_operator.runtime import metrics
from xdeepserve_operator.runtime.kube import ApiError
from xdeepserve_operator.runtime.workqueue import Key, WorkQueue

logger = structlog.get_logger(__name__)
WORKERS = 40  # most of them wait for the API server: so many creations are in flight
SHORT_PASS_SECONDS, MOST_REST_SECONDS = 0.05, 0.25  # after a longer pass a key rests as long as it took
RECONCILE_SECONDS = 60.0  # one reconciliation may take at most this long


class Reconciler(Protocol):
    """One kind's reconciler; answers in how many seconds it wants to run again, or None for events only."""

    kind: str

    async def reconcile(self, namespace: str | None, name: str) -> float | None:
        """Brings one object closer to its spec."""


@runtime_checkable
class Glancing(Protocol):
    """A reconciler that can tell cheaply that a pass would find nothing new."""

    async def glance(self, namespace: str | None, name: str) -> float | None:
        """Asked when nothing but the timer wakes an object: seconds to go on waiting, None when a pass is due."""


class ReconcileLoop:
    """The queue and its workers."""

    def __init__(self, reconcilers: Iterable[Reconciler], *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._reconcilers: Mapping[str, Reconciler] = {reconciler.kind: reconciler for reconciler in reconcilers}
        self._monotonic = monotonic
        self._last_done = monotonic()
        self.queue = WorkQueue()
        metrics.QUEUE_DEPTH.set_function(lambda: len(self.queue))

    def mark(self, kind: str, namespace: str | None, name: str) -> None:
        """Wakes the reconciler of an object; kinds without one are ignored."""
        if kind in self._reconcilers:
            self.queue.mark(Key(kind, namespace or "", name))

    def progress_age(self) -> float:
        """Seconds since a worker last finished a key, 0 while nothing is due."""
        if not self.queue.overdue():
            self._last_done = self._monotonic()
        return self._monotonic() - self._last_done

    async def run(self) -> None:
        """Works until cancelled: one taker hands each key to a task of its own, so that no news wakes many."""
        free = asyncio.Semaphore(WORKERS)
        async with asyncio.TaskGroup() as group:
            while True:
                await free.acquire()
                key, news = await self.queue.take()
                group.create_task(self._work(key, news)).add_done_callback(lambda _: free.release())

    async def _work(self, key: Key, news: bool) -> None:
        failed, again_after = True, None
        started = self._monotonic()
        structlog.contextvars.bind_contextvars(**key._asdict())  # of this task: every line of the pass names the object
        try:
            async with asyncio.timeout(RECONCILE_SECONDS):
                reconciler, named = self._reconcilers[key.kind], (key.namespace or None, key.name)
                if not news and isinstance(reconciler, Glancing):
                    again_after = await reconciler.glance(*named)
                if again_after is None:
                    again_after = await reconciler.reconcile(*named)
            failed = False
        except ApiError as error:
            logger.info("reconcile refused", status=error.status, reason=error.reason, message=error.message)
        except Exception:
            logger.exception("reconcile failed")
        finally:
            self._last_done = self._monotonic()
            seconds = self._last_done - started
            rest = min(seconds, MOST_REST_SECONDS) if seconds > SHORT_PASS_SECONDS else 0.0
            self.queue.done(key, failed=failed, again_after=again_after, rest=rest)
            metrics.RECONCILE_SECONDS.labels(key.kind).observe(seconds)
            metrics.RECONCILE_TOTAL.labels(key.kind, "error" if failed else "success").inc()
