"""The operator as one process: fill the caches, win the Lease, reconcile until told to stop.

Order: probes first, then a full list, then watches (kopf), then the Lease, then workers. Whatever ends, ends all: a
lost Lease or a broken task ends the process with status 1, and the pod starts again from nothing. A stop signal
cancels the workers first, then releases the Lease, so that the other operator starts without waiting.
"""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import aiohttp
import kopf
import structlog

from xdeepserve_operator.controllers.wiring import interested, reconcilers
from xdeepserve_operator.planner import memory
from xdeepserve_operator.runtime import health, metrics, watches
from xdeepserve_operator.runtime.cache import Cache
from xdeepserve_operator.runtime.engines import EngineClient
from xdeepserve_operator.runtime.events import EventWriter
from xdeepserve_operator.runtime.experts import ExpertClient
from xdeepserve_operator.runtime.kube import KubeApi, Object
from xdeepserve_operator.runtime.lease import Lease, LeaseSettings
from xdeepserve_operator.runtime.loop import ReconcileLoop
from xdeepserve_operator.runtime.store import Store
from xdeepserve_operator.runtime.writer import Writer

logger = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Settings:
    """What the chart sets."""

    namespace: str
    identity: str
    engine_image: str
    host: str = "127.0.0.1"
    health_port: int = 8081
    lease_seconds: float = 12.0

    @classmethod
    def from_environment(cls) -> "Settings":
        """Reads POD_NAMESPACE, POD_NAME, XDEEPSERVE_ENGINE_IMAGE, POD_IP and XDEEPSERVE_LEASE_SECONDS."""
        env = os.environ
        return cls(
            namespace=env.get("POD_NAMESPACE", "default"),
            identity=env.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}",
            engine_image=env.get("XDEEPSERVE_ENGINE_IMAGE", "xdeepserve:0.1.0"),
            host=env.get("POD_IP", "127.0.0.1"),
            lease_seconds=float(env.get("XDEEPSERVE_LEASE_SECONDS", "12")),
        )


class SystemClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        """UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never jump."""
        return monotonic()


async def run(settings: Settings) -> int:
    """Runs until SIGTERM or SIGINT (0) or until the Lease is lost (1)."""
    stop = asyncio.Event()
    _take_signals(stop)
    async with KubeApi.connect() as api, aiohttp.ClientSession() as session:
        api.on_call = lambda verb, plural: metrics.API_CALLS.labels(verb, plural).inc()
        renew_seconds = settings.lease_seconds / 3
        lease = Lease(
            api,
            LeaseSettings(
                settings.namespace,
                settings.identity,
                lease_seconds=settings.lease_seconds,
                renew_seconds=renew_seconds,
            ),
        )

        def wake(kind: str, obj: Object) -> None:
            for key in interested(store, kind, obj):
                loop.mark(*key)

        store, events = Store(wake), EventWriter(api, lease.held)
        writer = Writer(api, store, events, lease.held, write_seconds=renew_seconds)
        engines = EngineClient(session)
        image, experts = settings.engine_image, ExpertClient(engines)
        loop = ReconcileLoop(reconcilers(store, writer, engines, SystemClock(), engine_image=image, experts=experts))

        def forget(uid: str) -> None:
            writer.forget(uid)
            memory.forget(uid)

        cache = Cache(api, store, forget, memory.turn)
        runner = await health.serve(
            settings.host,
            settings.health_port,
            progress_age=lambda: loop.progress_age() if lease.held() else 0.0,
            synced=lambda: cache.synced,
        )
        background = {
            "watch": _watch(api, cache, stop),
            "follow": cache.follow(),
            "audit": cache.audit(),
            "events": events.run(),
            "lead": lead(lease, cache, loop),
        }
        try:
            async with _tasks(background) as tasks:
                stopping = asyncio.create_task(stop.wait())
                await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
                status = 0 if stop.is_set() else _report(tasks)
                stopping.cancel()
        finally:
            await runner.cleanup()
        return status


def _take_signals(stop: asyncio.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


def _report(tasks: list[asyncio.Task[None]]) -> int:
    for task in tasks:
        if task.done():
            logger.error("task ended", task=task.get_name(), error=repr(task.exception()))
    return 1


async def lead(lease: Lease, cache: Cache, loop: ReconcileLoop) -> None:
    """Works while the Lease is held; returns when it is lost. At the end every worker has stopped, and it is free."""
    await cache.fill()
    await lease.acquire()
    metrics.LEADER.set(1)
    working = asyncio.create_task(loop.run())
    keeping = asyncio.create_task(lease.keep())
    try:
        await asyncio.wait([working, keeping], return_when=asyncio.FIRST_COMPLETED)
    finally:
        metrics.LEADER.set(0)
        for task in (working, keeping):
            task.cancel()
        await asyncio.gather(working, keeping, return_exceptions=True)
        await lease.release()


async def _watch(api: KubeApi, cache: Cache, stop: asyncio.Event) -> None:
    """Watches until cancelled.

    The framework takes the signals at its start; told to stop by one, it would wait 5 s for every task in the process.
    """
    started = asyncio.Event()
    watching = asyncio.create_task(
        kopf.operator(
            registry=watches.registry_for(api, cache),
            settings=watches.settings(),
            clusterwide=True,
            standalone=True,
            ready_flag=started,
        )
    )
    starting = asyncio.create_task(started.wait())
    try:
        await asyncio.wait([watching, starting], return_when=asyncio.FIRST_COMPLETED)
        _take_signals(stop)
        await watching
    finally:
        starting.cancel()
        watching.cancel()
        await asyncio.gather(starting, watching, return_exceptions=True)


@asynccontextmanager
async def _tasks(coroutines: dict[str, Coroutine[Any, Any, None]]) -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks = [asyncio.create_task(coroutine, name=name) for name, coroutine in coroutines.items()]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
