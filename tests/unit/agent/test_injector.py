"""Faults carried out on pods with real processes, against an API server in memory."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.fake_api import FakeApi, make_host
from xdeepserve_cluster.agent.host import Host
from xdeepserve_cluster.agent.injector import Injector
from xdeepserve_cluster.agent.pod import PodWorker
from xdeepserve_operator.api.names import LABEL_EXECUTOR
from xdeepserve_operator.runtime.kube import Object

FAULTS = "faultinjections"


class Stage:
    """Two servers with one decode pod of two dies each."""

    def __init__(self, host: Host, api: FakeApi) -> None:
        self.host, self.api = host, api
        self.now = 1000.0
        host.clock = lambda: self.now
        self.workers: dict[str, PodWorker] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.nodes: list[str] = []
        self.injector = self.agent()

    def agent(self) -> Injector:
        injector = Injector(self.host, "pod-a", self.workers.values, self.nodes.append)
        self.host.on_start = injector.retry
        return injector

    async def start(self, name: str, server: str, executor: str = "chat-decode") -> None:
        container = {
            "name": "c",
            "command": ["sleep", "60"],
            "resources": {"limits": {"huawei.com/Ascend910": "2"}},
        }
        metadata = {"name": name, "namespace": "team", "uid": name, "labels": {LABEL_EXECUTOR: executor}}
        pod = {"metadata": metadata, "spec": {"nodeName": server, "containers": [container]}}
        self.workers[name] = PodWorker(self.host, self.host.servers[server], pod)
        self.tasks.append(asyncio.create_task(self.workers[name].run()))
        await self.api.until(lambda: any(body["metadata"]["name"] == name for body in self.api.applied("pods")))

    def pid(self, name: str) -> int:
        """A pod's process, which must run."""
        [runner] = self.workers[name].runners
        assert runner.process is not None
        return runner.process.pid

    def becomes(self, name: str, change: int) -> None:
        """Waits until the kernel reports a pod's process as WSTOPPED or WCONTINUED."""
        os.waitid(os.P_PID, self.pid(name), change)

    def lives(self, name: str) -> bool:
        """Whether a pod's process runs and no signal is on its way to it."""
        status = Path(f"/proc/{self.pid(name)}/status").read_text()
        return "State:\tZ" not in status and "SigPnd:\t0000000000000000" in status

    async def dead(self, name: str) -> int:
        [runner] = self.workers[name].runners
        assert runner.process is not None
        async with asyncio.timeout(5):
            return await asyncio.shield(runner.process.exited)

    async def report(self, holds: Callable[[Object], bool] = bool) -> Object:
        return await self.api.statuses(holds, FAULTS)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    api = FakeApi()
    stage = Stage(make_host(api, tmp_path, "910C=2"), api)
    await stage.start("d-0", "pod-a-910c-0")
    await stage.start("d-1", "pod-a-910c-1")
    yield stage
    for task in stage.tasks:
        task.cancel()
    await asyncio.wait(stage.tasks)
    await asyncio.gather(*(process.stop(0) for process in list(stage.host.processes)))


def fault(kind: str, seconds: int | None = None, *, status: Object | None = None, **target: Any) -> Object:
    spec: Object = {"fault": {"type": kind}, "target": target}
    if seconds:
        spec["durationSeconds"] = seconds
    metadata = {"name": "f", "namespace": "team", "uid": "f", "generation": 1}
    return {"metadata": metadata, "spec": spec, "status": status or {}}


async def test_a_killed_die_takes_its_pod_and_nothing_else(stage: Stage) -> None:
    stage.injector.on_event("ADDED", fault("DieKill", node="pod-a-910c-0", die=1))
    assert stage.host.servers["pod-a-910c-0"].unhealthy == {1}
    assert stage.nodes == ["pod-a-910c-0"]
    assert await stage.dead("d-0") == 137
    assert stage.lives("d-1")
    status = await stage.report()
    assert (status["node"], status["die"], status["pods"]) == ("pod-a-910c-0", 1, ["team/d-0"])
    assert status["injectedAt"] == "1970-01-01T00:16:40.000000Z"
    [condition] = status["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Injected", "True", "Injected")


async def test_deleting_the_fault_mends_the_die(stage: Stage) -> None:
    obj = fault("DieKill", node="pod-a-910c-0", die=1)
    stage.injector.on_event("ADDED", obj)
    stage.injector.on_event("DELETED", obj)
    assert stage.host.servers["pod-a-910c-0"].unhealthy == frozenset()
    assert stage.nodes == ["pod-a-910c-0"] * 2


async def test_a_fault_ends_by_itself_after_its_duration(stage: Stage) -> None:
    stage.host.clock = itertools.count(1000.0, 0.99).__next__  # so that a second lasts 10 ms
    stage.injector.on_event("ADDED", fault("DieHang", 1, node="pod-a-910c-1"))
    stage.becomes("d-1", os.WSTOPPED)
    assert not stage.nodes  # a hang leaves the server healthy
    status = await stage.report(lambda status: "mendedAt" in status)
    assert status["pods"] == ["team/d-1"]
    assert status["mendedAt"] > status["injectedAt"]
    stage.becomes("d-1", os.WCONTINUED)


async def test_a_lost_server_dies_in_silence(stage: Stage) -> None:
    stage.injector.on_event("ADDED", fault("NodeLoss", node="pod-a-910c-1"))
    assert stage.host.servers["pod-a-910c-1"].lost
    assert await stage.dead("d-1") == 137
    assert (await stage.report())["die"] == -1


async def test_without_a_target_it_waits_for_a_pod(stage: Stage) -> None:
    stage.injector.on_event("ADDED", fault("DieKill", taskExecutor="late"))
    status = await stage.report()
    [condition] = status["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "NoTarget")
    await stage.start("other", "pod-a-910c-0")
    assert len(stage.api.applied(FAULTS)) == 1
    await stage.start("late", "pod-a-910c-0", executor="late")
    assert (await stage.report(lambda status: "node" in status))["pods"] == ["team/late"]


async def test_a_new_agent_keeps_what_is_broken_and_strikes_nobody_again(stage: Stage) -> None:
    done = {"node": "pod-a-910c-0", "die": 9, "pods": [], "injectedAt": "1970-01-01T00:10:00Z"}
    stage.injector.on_event("ADDED", fault("DieKill", taskExecutor="chat-decode", status=done))
    assert stage.host.servers["pod-a-910c-0"].unhealthy == {9}
    assert stage.lives("d-0")


async def test_a_new_agent_mends_what_ended_meanwhile(stage: Stage) -> None:
    done = {"node": "pod-a-910c-0", "die": 9, "pods": [], "injectedAt": "1970-01-01T00:10:00Z"}
    stage.injector.on_event("ADDED", fault("DieKill", 5, node="pod-a-910c-0", die=9, status=done))
    status = await stage.report(lambda status: "mendedAt" in status)
    assert status["injectedAt"] == "1970-01-01T00:10:00Z"
    assert stage.host.servers["pod-a-910c-0"].unhealthy == frozenset()
    mended = fault("DieKill", node="pod-a-910c-0", die=9, status=done | {"mendedAt": "1970-01-01T00:11:00Z"})
    stage.agent().on_event("ADDED", mended)
    assert stage.host.servers["pod-a-910c-0"].unhealthy == frozenset()


@pytest.mark.parametrize(("superpod_id", "unhealthy"), [("pod-a", {3}), ("pod-b", set())])
async def test_faults_of_other_superpods_are_left_alone(stage: Stage, superpod_id: str, unhealthy: set[int]) -> None:
    stage.api.objects["superpods", "sp"] = {"spec": {"superpodId": superpod_id}}
    stage.injector.on_event("ADDED", fault("DieKill", node="pod-a-910c-0", die=3, superPod="sp"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert stage.host.servers["pod-a-910c-0"].unhealthy == unhealthy
    assert bool(stage.api.applied(FAULTS)) is bool(unhealthy)


async def test_an_unreadable_fault_breaks_nothing(stage: Stage) -> None:
    stage.injector.on_event("ADDED", fault("Meteor", node="pod-a-910c-0"))
    assert not stage.nodes
