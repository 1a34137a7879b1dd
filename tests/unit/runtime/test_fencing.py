"""No write after the Lease is lost: not by a worker, not by a request that was on its way, not by a queued event."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from xdeepserve_operator.runtime.app import lead
from xdeepserve_operator.runtime.cache import Cache
from xdeepserve_operator.runtime.events import EventWriter
from xdeepserve_operator.runtime.kube import KubeApi
from xdeepserve_operator.runtime.lease import Lease, LeaseSettings
from xdeepserve_operator.runtime.loop import ReconcileLoop
from xdeepserve_operator.runtime.resources import LEASES, PODS
from xdeepserve_operator.runtime.store import Store
from xdeepserve_operator.runtime.writer import IN_FLIGHT, NotLeader, Writer

from .api_server import ApiServer

LEASE_SECONDS, RENEW_SECONDS = 0.6, 0.2
POD = {"metadata": {"name": "p", "namespace": "n"}, "spec": {}}


class Busy:
    """A reconciler that creates one pod after another."""

    kind = "DPGroup"

    def __init__(self, writer: Writer) -> None:
        self._writer, self._numbers = writer, itertools.count()

    async def reconcile(self, namespace: str | None, name: str) -> float:
        metadata = {"name": f"p{next(self._numbers)}", "namespace": "n"}
        await self._writer.create("Pod", {"metadata": metadata, "spec": {}})
        return 0.01


async def test_a_leader_that_cannot_renew_writes_nothing_once_another_may(server: ApiServer, api: KubeApi):
    lease = Lease(api, LeaseSettings("n", "me", lease_seconds=LEASE_SECONDS, renew_seconds=RENEW_SECONDS))
    store = Store()
    writer = Writer(api, store, EventWriter(api), lease.held, write_seconds=RENEW_SECONDS)
    loop = ReconcileLoop([Busy(writer)])
    loop.mark("DPGroup", "n", "g")
    leading = asyncio.create_task(lead(lease, Cache(api, store, lambda _uid: None), loop))
    await server.until(lambda: len(server.writes_to("pods")) >= 3)
    server.hang(lambda request: "leases" in request.path)
    async with asyncio.timeout(10):
        await leading
    assert not lease.held()
    taken_over = len(server.writes_to("pods"))
    server.put(LEASES, {"metadata": {"name": "xdeepserve-operator", "namespace": "n"}, "spec": {"holderIdentity": "b"}})
    server.release()
    await asyncio.sleep(2 * LEASE_SECONDS)
    assert len(server.writes_to("pods")) == taken_over


async def test_a_write_that_hangs_is_given_up_before_another_may_lead(server: ApiServer, api: KubeApi):
    writer = Writer(api, Store(), EventWriter(api), lambda: True, write_seconds=0.05)
    server.hang(lambda request: request.method == "POST")
    with pytest.raises(TimeoutError):
        await writer.create("Pod", POD)
    await server.until(lambda: bool(server.abandoned))
    server.release()
    assert server.writes_to("pods") == []


async def test_repeating_a_refused_write_does_not_outlive_the_fence(server: ApiServer, api: KubeApi):
    writer = Writer(api, Store(), EventWriter(api), lambda: True, write_seconds=0.05)
    server.refuse(429, lambda request: request.method == "POST", Retry_After="1")
    with pytest.raises(TimeoutError):
        await writer.create("Pod", POD)
    assert server.writes_to("pods") == []


async def test_events_that_are_queued_when_the_lease_is_lost_are_dropped(server: ApiServer, api: KubeApi):
    leading = {"now": True}
    events = EventWriter(api, lambda: leading["now"])
    writing = asyncio.create_task(events.run())
    subject = server.put(PODS, POD)
    events.say(subject, "First", "said")
    await server.until(lambda: bool(server.writes_to("events")))
    leading["now"] = False
    events.say(subject, "Second", "not said")
    await asyncio.sleep(0.05)
    assert len(server.writes_to("events")) == 1
    writing.cancel()


async def test_two_operators_take_turns(server: ApiServer, api: KubeApi):
    first, second = (
        Lease(api, LeaseSettings("n", name, lease_seconds=LEASE_SECONDS, renew_seconds=RENEW_SECONDS))
        for name in ("a", "b")
    )
    await first.acquire()
    keeping = asyncio.create_task(first.keep())
    waiting = asyncio.create_task(second.acquire())
    await asyncio.sleep(2 * LEASE_SECONDS)
    assert (first.held(), waiting.done()) == (True, False)
    keeping.cancel()
    await first.release()
    async with asyncio.timeout(5):
        await waiting
    assert (first.held(), second.held()) == (False, True)


async def test_writes_in_flight_are_bounded_and_those_that_wait_are_fenced_too(server: ApiServer, api: KubeApi):
    leading = {"now": True}
    writer = Writer(api, Store(), EventWriter(api), lambda: leading["now"], write_seconds=5)
    server.hang(lambda request: request.method == "POST")
    bodies = [{"metadata": {"name": f"p{number}", "namespace": "n"}, "spec": {}} for number in range(2 * IN_FLIGHT)]
    writes = [asyncio.create_task(writer.create("Pod", body)) for body in bodies]
    async with asyncio.timeout(5):
        while len(server.requests) < IN_FLIGHT:  # noqa: ASYNC110 - held requests are no news
            await asyncio.sleep(0.01)
    leading["now"] = False
    server.release()
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert sum(isinstance(outcome, NotLeader) for outcome in outcomes) == IN_FLIGHT
    assert len(server.writes_to("pods")) == IN_FLIGHT
