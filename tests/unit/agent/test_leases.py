"""Heartbeats of the servers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.unit.agent.fake_api import FakeApi, make_host
from xdeepserve_cluster.agent.leases import Heartbeats
from xdeepserve_operator.runtime.kube import ApiError, NotFound, Object
from xdeepserve_operator.runtime.resources import Resource


class LeaseApi(FakeApi):
    """Knows the leases that were created; `down` makes every renewal fail."""

    down = False

    async def patch(self, resource: Resource, name: str, patch: Object, namespace: str, **options: Any) -> Object:
        if self.down:
            raise ApiError(503, "Unavailable", "later")
        if all(body["metadata"]["name"] != name for verb, _, body in self.writes if verb == "create"):
            raise NotFound(404, "NotFound", name)
        return await self._write("patch", resource.plural, {"name": name, **patch})


async def test_leases_are_created_renewed_and_fall_silent(tmp_path: Path) -> None:
    api = LeaseApi()
    host = make_host(api, tmp_path, "910C=2")
    host.clock = lambda: 60.0
    task = asyncio.create_task(Heartbeats(host, 0).run())
    await api.until(lambda: [verb for verb, _, _ in api.writes].count("patch") >= 2)
    created = api.writes[0][2]
    assert created["metadata"] == {"name": "pod-a-910c-0", "namespace": "kube-node-lease"}
    assert created["spec"]["renewTime"] == "1970-01-01T00:01:00.000000Z"
    api.down = True
    for _ in range(5):
        await asyncio.sleep(0)
    api.down = False
    host.servers["pod-a-910c-0"].lost = True
    for _ in range(5):
        await asyncio.sleep(0)
    before = len(api.writes)
    await api.until(lambda: len(api.writes) >= before + 3)
    assert {body["name"] for _, _, body in api.writes[before:]} == {"pod-a-910c-1"}
    task.cancel()
