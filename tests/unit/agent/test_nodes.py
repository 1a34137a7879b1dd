"""Nodes are registered, corrected, and left alone when they are right."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.agent.fake_api import SERVER, FakeApi, make_host
from xdeepserve_cluster.agent.host import Host
from xdeepserve_cluster.agent.nodes import NodeKeeper
from xdeepserve_operator.runtime.kube import Object


class Stage:
    def __init__(self, host: Host, api: FakeApi) -> None:
        self.host, self.api = host, api
        self.keeper = NodeKeeper(host, 10250)
        self.task = asyncio.create_task(self.keeper.run())

    async def written(self, count: int) -> Object:
        """The node that was written last, when so many were."""
        await self.api.until(lambda: len(self.api.writes) >= count)
        await self.idle()
        assert len(self.api.writes) == count
        node: Object = copy.deepcopy(self.api.writes[-1][2])
        return node

    async def idle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    api = FakeApi()
    stage = Stage(make_host(api, tmp_path), api)
    stage.keeper.mark(SERVER)
    yield stage
    stage.task.cancel()


async def test_registration_takes_one_write(stage: Stage) -> None:
    node = await stage.written(1)
    assert stage.api.writes[0][0] == "create"
    assert not stage.keeper.registered()
    stage.keeper.on_event("ADDED", node)
    assert stage.keeper.registered()
    await stage.written(1)


async def test_a_change_of_health_is_one_write_with_its_annotation(stage: Stage) -> None:
    stage.keeper.on_event("ADDED", await stage.written(1))
    stage.host.servers[SERVER].unhealthy = frozenset({5})
    stage.keeper.mark(SERVER)
    node = await stage.written(2)
    assert node["status"]["allocatable"]["huawei.com/Ascend910"] == "15"
    assert node["metadata"]["annotations"]["huawei.com/Ascend910-Unhealthy"] == "Ascend910-5"


async def test_a_node_that_was_taken_for_dead_or_deleted_comes_back(stage: Stage) -> None:
    node = await stage.written(1)
    silent = copy.deepcopy(node)
    silent["status"]["conditions"][-1]["status"] = "Unknown"
    stage.keeper.on_event("MODIFIED", silent)
    await stage.written(2)
    stage.keeper.on_event("MODIFIED", node)
    stage.keeper.on_event("DELETED", node)
    await stage.written(3)
    assert [verb for verb, _, _ in stage.api.writes] == ["create", "apply", "create"]


async def test_a_lost_server_is_not_written(stage: Stage) -> None:
    node = await stage.written(1)
    node["status"]["conditions"][-1]["status"] = "Unknown"
    state = stage.host.servers[SERVER]
    state.lost = True
    stage.keeper.on_event("MODIFIED", node)
    await stage.idle()
    await stage.written(1)
    state.lost = False
    stage.keeper.mark(SERVER)
    await stage.written(2)
