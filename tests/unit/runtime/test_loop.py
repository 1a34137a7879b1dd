"""The loop: a timer alone is answered by a glance, news by a pass; many passes wait side by side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import structlog

from xdeepserve_operator.runtime.loop import WORKERS, ReconcileLoop
from xdeepserve_operator.runtime.metrics import REGISTRY


class Calm:
    """Glances answer until ``stirred``; calls are recorded."""

    kind = "TaskExecutor"

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.stirred = False
        self.changed = asyncio.Event()

    async def reconcile(self, namespace: str | None, name: str) -> float:
        self._say("pass")
        return 0.01

    async def glance(self, namespace: str | None, name: str) -> float | None:
        self._say("glance")
        return None if self.stirred else 0.01

    async def heard(self, *calls: str) -> None:
        async with asyncio.timeout(5):
            while self.calls[: len(calls)] != list(calls):
                self.changed.clear()
                await self.changed.wait()

    def _say(self, call: str) -> None:
        self.calls.append(call)
        self.changed.set()


class Slow:
    """Passes that wait until all of them are there."""

    kind = "DPGroup"

    def __init__(self, together: int) -> None:
        self._barrier = asyncio.Barrier(together)

    async def reconcile(self, namespace: str | None, name: str) -> None:
        await self._barrier.wait()


@pytest.fixture
async def running() -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks: list[asyncio.Task[None]] = []
    yield tasks
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_timer_alone_gets_a_glance_and_news_a_pass(running: list[asyncio.Task[None]]):
    calm = Calm()
    loop = ReconcileLoop([calm])
    loop.mark("TaskExecutor", "n", "t")
    running.append(asyncio.create_task(loop.run()))
    await calm.heard("pass", "glance", "glance")
    calm.calls.clear()
    loop.mark("TaskExecutor", "n", "t")
    await calm.heard("pass")


async def test_a_glance_that_finds_news_is_followed_by_a_pass(running: list[asyncio.Task[None]]):
    calm = Calm()
    calm.stirred = True
    loop = ReconcileLoop([calm])
    loop.mark("TaskExecutor", "n", "t")
    running.append(asyncio.create_task(loop.run()))
    await calm.heard("pass", "glance", "pass")


async def test_as_many_passes_wait_at_once_as_there_are_workers(running: list[asyncio.Task[None]]):
    slow = Slow(WORKERS)
    loop = ReconcileLoop([slow])
    for number in range(WORKERS):
        loop.mark("DPGroup", "n", str(number))
    running.append(asyncio.create_task(loop.run()))
    async with asyncio.timeout(5):
        while len(loop.queue) or loop.queue.overdue(3600):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


class Broken:
    """Says something, then fails."""

    kind = "SuperPod"

    async def reconcile(self, namespace: str | None, name: str) -> None:
        structlog.get_logger("somewhere.deep").info("looking")
        raise RuntimeError("no such luck")


async def test_every_line_of_a_pass_names_its_object_and_failures_are_counted(running: list[asyncio.Task[None]]):
    loop = ReconcileLoop([Broken()])
    before = figures()
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        loop.mark("SuperPod", None, "pod-a")
        running.append(asyncio.create_task(loop.run()))
        async with asyncio.timeout(5):
            while len(lines) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert [(one["event"], one["kind"], one["name"]) for one in lines[:2]] == [
        ("looking", "SuperPod", "pod-a"),
        ("reconcile failed", "SuperPod", "pod-a"),
    ]
    assert structlog.contextvars.get_contextvars() == {}, "the next pass has nothing of this one"
    after = figures()
    assert after["xdeepserve_reconcile_total", "error"] == before.get(("xdeepserve_reconcile_total", "error"), 0) + 1
    assert ("xdeepserve_reconcile_duration_seconds_count", "") in after
    assert ("xdeepserve_workqueue_depth", "") in after


def figures() -> dict[tuple[str, str], float]:
    """What is counted of SuperPods, by name and result."""
    samples = (one for family in REGISTRY.collect() for one in family.samples)
    mine = (one for one in samples if one.labels.get("kind", "SuperPod") == "SuperPod")
    return {(one.name, one.labels.get("result", "")): one.value for one in mine}
