"""The client against an API server that misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from xdeepserve_operator.runtime import kube
from xdeepserve_operator.runtime.kube import ApiError, Conflict, Gone, KubeApi, NotFound, TooManyRequests
from xdeepserve_operator.runtime.resources import DPGROUPS, PODS

from .api_server import ApiServer


def pod(name: str, node: str = "", **labels: str) -> dict:
    return {"metadata": {"name": name, "namespace": "n", "labels": labels}, "spec": {"nodeName": node}}


async def test_a_long_list_is_read_page_by_page(server: ApiServer, api: KubeApi, monkeypatch):
    monkeypatch.setattr(kube, "PAGE", 10)
    for number in range(35):
        server.put(PODS, pod(f"p{number:02}", app="a" if number % 2 else "b"))
    items, version = await api.list(PODS, labels="app=a")
    assert [item["metadata"]["name"] for item in items] == [f"p{number:02}" for number in range(1, 35, 2)]
    assert int(version) == server.version
    assert len(server.requests) == 2
    names = await api.list_metadata(PODS)
    assert len(names) == 35
    assert all(set(item) == {"metadata"} for item in names)
    assert list(await api.list_metadata(DPGROUPS)) == []


async def test_every_request_says_whose_it_is(server: ApiServer, api: KubeApi):
    agents: list[str] = []

    def note(request: web.Request) -> bool:
        agents.append(request.headers["User-Agent"])
        return False

    server.refuse(500, note)
    await api.create(PODS, pod("p"))
    assert agents == ["xdeepserve"]


async def test_a_page_that_expired_is_told_as_gone(server: ApiServer, api: KubeApi, monkeypatch):
    monkeypatch.setattr(kube, "PAGE", 1)
    for name in ("a", "b", "c"):
        server.put(PODS, pod(name))
    first = api.request("GET", "/api/v1/pods", params={"limit": "1"})
    token = (await first)["metadata"]["continue"]
    server.put(PODS, pod("d"))
    server.compact()
    with pytest.raises(Gone):
        await api.request("GET", "/api/v1/pods", params={"limit": "1", "continue": token})


async def test_too_many_requests_is_tried_again_after_the_time_it_names(server: ApiServer, api: KubeApi):
    server.refuse(429, lambda request: request.method == "POST", times=2, Retry_After="0")
    await api.create(PODS, pod("a"))
    assert [method for method, _ in server.requests] == ["POST"] * 3
    assert len(server.writes_to("pods")) == 1


async def test_an_api_server_that_stays_busy_is_an_error_in_the_end(server: ApiServer, api: KubeApi):
    server.refuse(429, times=100, Retry_After="0")
    with pytest.raises(TooManyRequests):
        await api.get(PODS, "a", "n")
    assert 1 < len(server.requests) < 10


async def test_a_refusal_without_a_time_is_not_repeated(server: ApiServer, api: KubeApi):
    server.refuse(500)
    with pytest.raises(ApiError, match="asked for by the test"):
        await api.get(PODS, "a", "n")
    assert len(server.requests) == 1


async def test_another_life_of_a_name_is_not_deleted(server: ApiServer, api: KubeApi):
    server.put(PODS, pod("a"))
    with pytest.raises(Conflict):
        await api.delete(PODS, "a", "n", uid="another")
    await api.delete(PODS, "nobody", "n")
    assert len(server.objects) == 1


async def test_equal_strings_of_two_answers_are_one(server: ApiServer, api: KubeApi):
    server.put(PODS, pod("a", node="server-0", app="decode"))
    first, second = [await api.get(PODS, "a", "n") for _ in range(2)]
    assert next(iter(first["metadata"]["labels"])) is next(iter(second["metadata"]["labels"]))
    assert first["spec"]["nodeName"] is second["spec"]["nodeName"]


class _Stream:
    """Chunks at these times after the start; time passes by itself only while somebody sleeps or waits for one."""

    def __init__(self, times: list[float]) -> None:
        self.now, self._times, self.read = 0.0, times, list[float]()

    async def iter_any(self) -> AsyncIterator[bytes]:
        while self._times:
            self.now = max(self.now, self._times[0])
            arrived = [at for at in self._times if at <= self.now]
            self._times = self._times[len(arrived) :]
            self.read.append(self.now)
            yield b"x" * len(arrived)

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


async def test_news_in_a_flood_are_read_in_gulps_and_single_ones_at_once():
    flood = [1.0 + 0.001 * number for number in range(100)]
    stream = _Stream([0.0, 0.5, *flood, 2.0])
    gulps = [
        len(chunk)
        async for chunk in kube.gulps(stream, monotonic=stream.monotonic, sleep=stream.sleep)  # type: ignore[arg-type]
    ]
    assert sum(gulps) == 103
    assert {0.0, 0.5, 1.0, 2.0} <= set(stream.read), "what comes alone is read when it comes"
    assert len(gulps) <= 3 + 2 + 0.1 / kube.GULP_SECONDS, "a flood of 100 is few gulps"


async def test_a_collection_is_deleted_by_labels_and_fields_in_one_request(server: ApiServer, api: KubeApi):
    for number in range(8):
        server.put(PODS, pod(f"p{number}", app="a" if number % 2 else "b", node=f"s{number % 4}"))
    await api.delete_collection(PODS, "n", {"app": "a"}, {"spec.nodeName": "s3"})
    assert sorted(name for _, _, name in server.objects) == ["p0", "p1", "p2", "p4", "p5", "p6"]
    assert len(server.writes_to("pods")) == 1


async def test_nobody_deletes_everything(server: ApiServer, api: KubeApi):
    with pytest.raises(ValueError, match="all pods of n"):
        await api.delete_collection(PODS, "n", {}, {})
    assert server.requests == []


async def test_apply_creates_and_merges(server: ApiServer, api: KubeApi):
    body = {"metadata": {"name": "g", "namespace": "n"}, "spec": {"node": "s0"}}
    first = await api.apply(DPGROUPS, body, field_manager="me")
    again = await api.apply(
        DPGROUPS,
        {"metadata": body["metadata"], "status": {"epoch": 1}},
        field_manager="me",
        subresource="status",
    )
    assert (again["spec"], again["status"]) == ({"node": "s0"}, {"epoch": 1})
    assert again["metadata"]["uid"] == first["metadata"]["uid"]
    with pytest.raises(NotFound):
        await api.apply(
            DPGROUPS,
            {"metadata": {"name": "x", "namespace": "n"}, "status": {}},
            field_manager="me",
            subresource="status",
        )


async def test_a_watch_hears_what_happens_and_ends_with_410_after_a_compaction(server: ApiServer, api: KubeApi):
    heard: list[tuple[str, str]] = []

    async def follow(version: str) -> None:
        async for kind, obj in api.watch(PODS, resource_version=version, labels="app=a"):
            heard.append((kind, obj["metadata"]["name"]))
            if obj["metadata"]["name"] == "last":
                return

    start = str(server.version)
    server.put(PODS, pod("a", app="a"))
    server.put(PODS, pod("b", app="other"))
    server.put(PODS, pod("a", app="a") | {"spec": {"nodeName": "s0"}})
    server.remove(PODS, "n", "a")
    server.put(PODS, pod("last", app="a"))
    async with asyncio.timeout(5):
        await follow(start)
    assert heard == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "last")]
    server.compact()
    with pytest.raises(Gone):
        await follow(start)
