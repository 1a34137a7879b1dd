"""The store follows the cluster through kopf's watches, whatever happens to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import kopf
import pytest

from xdeepserve_operator.api.names import LABEL_MANAGED_BY, MANAGED_BY
from xdeepserve_operator.runtime import cache as caching
from xdeepserve_operator.runtime import watches
from xdeepserve_operator.runtime.cache import Cache
from xdeepserve_operator.runtime.kube import KubeApi
from xdeepserve_operator.runtime.resources import DPGROUPS, PODS, TASKEXECUTORS, Resource
from xdeepserve_operator.runtime.store import Store

from .api_server import ApiServer


def group(name: str, node: str = "s0") -> dict:
    return {"metadata": {"name": name, "namespace": "n"}, "spec": {"node": node}}


class World:
    """A store that a cache feeds; ``until`` waits for news instead of sleeping."""

    def __init__(self, api: KubeApi) -> None:
        self._news = asyncio.Condition()
        self._pending: set[asyncio.Task] = set()
        self.forgotten: list[str] = []
        self.store = Store(lambda _kind, _obj: self._tell())
        self.cache = Cache(api, self.store, self.forgotten.append)

    def names(self, kind: str = "DPGroup") -> list[str]:
        return [obj["metadata"]["name"] for obj in self.store.list(kind)]

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10), self._news:
            await self._news.wait_for(holds)

    def _tell(self) -> None:
        async def tell() -> None:
            async with self._news:
                self._news.notify_all()

        task = asyncio.ensure_future(tell())
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)


@pytest.fixture
def world(api: KubeApi) -> World:
    return World(api)


@asynccontextmanager
async def watching(api: KubeApi, world: World) -> AsyncIterator[None]:
    settings = watches.settings()
    settings.watching.reconnect_backoff = 0.05
    settings.networking.error_backoffs = [0.05] * 20
    running = asyncio.create_task(
        kopf.operator(
            registry=watches.registry_for(api, world.cache),
            settings=settings,
            clusterwide=True,
            standalone=True,
        )
    )
    following = asyncio.create_task(world.cache.follow())
    try:
        yield
    finally:
        for task in (running, following):  # told to stop, the framework would wait 5 s for all tasks there are
            task.cancel()
        await asyncio.gather(running, following, return_exceptions=True)


@pytest.mark.parametrize("resource", [DPGROUPS, TASKEXECUTORS])
async def test_the_store_follows_changes_and_deletions(
    server: ApiServer, api: KubeApi, world: World, resource: Resource
):
    kind = resource.kind
    server.put(resource, group("a"))
    await world.cache.fill()
    async with watching(api, world):
        server.put(resource, group("b"))
        await world.until(lambda: world.names(kind) == ["a", "b"])
        server.put(resource, group("a", "s1"))
        await world.until(lambda: world.store.get(kind, "n", "a")["spec"]["node"] == "s1")
        server.remove(resource, "n", "b")
        await world.until(lambda: world.names(kind) == ["a"])


@pytest.mark.parametrize("resource", [DPGROUPS, TASKEXECUTORS])
async def test_a_dropped_watch_and_a_compacted_log_lose_nothing(
    server: ApiServer, api: KubeApi, world: World, resource: Resource
):
    server.put(resource, group("a"))
    await world.cache.fill()
    async with watching(api, world):
        server.put(resource, group("b"))
        await world.until(lambda: "b" in world.names(resource.kind))
        server.drop_watches()
        server.put(resource, group("c"))
        await world.until(lambda: "c" in world.names(resource.kind))
        server.put(resource, group("d"))
        server.compact()
        server.drop_watches()
        await world.until(lambda: "d" in world.names(resource.kind))


async def test_what_goes_in_a_gap_of_a_followed_watch_is_told_at_the_next_list(
    server: ApiServer, api: KubeApi, world: World
):
    for name in ("a", "b"):
        server.put(DPGROUPS, group(name))
    async with watching(api, world):
        await world.until(lambda: world.names() == ["a", "b"])
        server.vanish(DPGROUPS, "n", "a")
        server.compact()
        server.drop_watches()
        await world.until(lambda: world.names() == ["b"])


async def test_a_deletion_that_no_watch_told_is_found_by_the_audit(
    server: ApiServer, api: KubeApi, world: World, monkeypatch
):
    for name in ("a", "b"):
        server.put(DPGROUPS, group(name))
    await world.cache.fill()
    gone = world.store.get("DPGroup", "n", "a")["metadata"]["uid"]
    server.vanish(DPGROUPS, "n", "a")
    monkeypatch.setattr(caching, "AUDIT_SECONDS", 0.01)
    audit = asyncio.create_task(world.cache.audit())
    await world.until(lambda: world.names() == ["b"])
    assert world.forgotten == [gone]
    audit.cancel()


async def test_an_object_made_during_the_audit_is_not_taken_for_gone(server: ApiServer, api: KubeApi, world: World):
    await world.cache.fill()
    before = list(world.store.keys("DPGroup"))
    world.cache.changed(DPGROUPS, server.put(DPGROUPS, group("young")))
    assert caching.missing(world.store, "DPGroup", before, []) == []


async def test_a_stale_read_does_not_take_back_what_is_known(server: ApiServer, api: KubeApi, world: World):
    server.put(DPGROUPS, group("a"))
    server.freeze()
    world.cache.changed(DPGROUPS, server.put(DPGROUPS, group("a", "s1")))
    await world.cache.fill()
    assert world.store.get("DPGroup", "n", "a")["spec"]["node"] == "s1"


@pytest.mark.parametrize("status", [410, 429, 500, 503])
async def test_a_first_list_that_fails_is_repeated(
    server: ApiServer, api: KubeApi, world: World, monkeypatch, status: int
):
    monkeypatch.setattr(caching, "FIRST_BACKOFF_SECONDS", 0.01)
    server.put(TASKEXECUTORS, {"metadata": {"name": "t", "namespace": "n"}, "spec": {}})
    server.refuse(status, lambda request: "taskexecutors" in request.path, times=2)
    await world.cache.fill()
    assert world.cache.synced
    assert world.names("TaskExecutor") == ["t"]


async def test_what_a_write_was_answered_is_what_the_watch_keeps(server: ApiServer, api: KubeApi, world: World):
    await world.cache.fill()
    async with watching(api, world):
        answer = await api.create(DPGROUPS, group("g0"))
        world.cache.changed(DPGROUPS, answer)
        kept = world.store.get("DPGroup", "n", "g0")
        server.put(DPGROUPS, group("g1"))
        await world.until(lambda: "g1" in world.names())
        assert world.store.get("DPGroup", "n", "g0") is kept
        server.remove(DPGROUPS, "n", "g0")
        await world.until(lambda: world.names() == ["g1"])
        assert world.forgotten == [answer["metadata"]["uid"]]


async def test_of_other_tenants_pods_only_those_with_dies_are_kept(server: ApiServer, api: KubeApi, world: World):
    dies = {"requests": {"huawei.com/Ascend910": "2"}}
    for name, labels, needs in (
        ("ours", {LABEL_MANAGED_BY: MANAGED_BY}, {}),
        ("theirs", {}, dies),
        ("nobody", {}, {}),
    ):
        containers = [{"name": "c", "image": "x" * 1000, "resources": needs}]
        server.put(
            PODS, {"metadata": {"name": name, "namespace": "n", "labels": labels}, "spec": {"containers": containers}}
        )
    await world.cache.fill()
    assert world.names("Pod") == ["ours", "theirs"]
    assert "image" not in world.store.get("Pod", "n", "theirs")["spec"]["containers"][0]
