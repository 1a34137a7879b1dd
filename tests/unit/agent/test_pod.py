"""Whole pods with real processes, against an API server in memory."""

from __future__ import annotations

import asyncio
import copy
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.fake_api import SERVER, FakeApi, make_host
from xdeepserve_cluster.agent import container as container_module
from xdeepserve_cluster.agent import lifecycle
from xdeepserve_cluster.agent import pod as pod_module
from xdeepserve_cluster.agent.host import Host
from xdeepserve_cluster.agent.pod import PodWorker
from xdeepserve_operator.api.names import POD_ANNOTATION_DIES
from xdeepserve_operator.runtime.kube import ApiError, Object

FOREVER = "while :; do sleep 0.05; done"


class Stage:
    """One pod at a time on one server."""

    def __init__(self, host: Host, api: FakeApi) -> None:
        self.host, self.api, self.server = host, api, host.servers[SERVER]
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, pod: Object) -> PodWorker:
        worker = PodWorker(self.host, self.server, pod)
        worker.restore()
        self.tasks.append(asyncio.create_task(worker.run()))
        return worker

    def delete(self, worker: PodWorker, grace: int = 5) -> None:
        pod = copy.deepcopy(worker.pod)
        pod["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace}
        worker.update(pod)

    async def gone(self) -> None:
        async with asyncio.timeout(5):
            await asyncio.gather(*self.tasks)

    def log(self, worker: PodWorker, run: int = 0) -> str:
        found = worker.logs("c")
        assert found is not None
        return found[0].path(run).read_text()


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    for module in (container_module, pod_module):
        monkeypatch.setattr(module, "RETRY_FIRST_S", 0.01)
    api = FakeApi()
    host = make_host(api, tmp_path)
    stage = Stage(host, api)
    yield stage
    for task in stage.tasks:
        task.cancel()
    if stage.tasks:
        await asyncio.wait(stage.tasks)
    await asyncio.gather(*(process.stop(0) for process in list(host.processes)))


def pod(script: str = FOREVER, *, dies: int = 0, name: str = "p", **spec: Any) -> Object:
    container: Object = {"name": "c", "image": "none", "command": ["sh", "-c", script]}
    if dies:
        container["resources"] = {"limits": {"huawei.com/Ascend910": str(dies)}}
    container |= spec.pop("container", {})
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}", "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {"nodeName": SERVER, "containers": [container], **spec}}


def shown(status: Object) -> Object:
    """The state of the one container."""
    found: Object = (status.get("containerStatuses") or [{}])[0].get("state", {})
    return found


def reason(status: Object) -> str:
    return str(shown(status).get("waiting", {}).get("reason", ""))


def restart_count(status: Object) -> int:
    return int((status.get("containerStatuses") or [{"restartCount": 0}])[0]["restartCount"])


def ready(status: Object) -> bool:
    return any(item["type"] == "Ready" and item["status"] == "True" for item in status.get("conditions", []))


async def test_a_pod_costs_one_write_to_start_and_one_to_end(stage: Stage) -> None:
    worker = stage.start(pod(dies=2))
    status = await stage.api.statuses(ready)
    assert status["phase"] == "Running"
    assert status["podIP"] == stage.host.addresses.take(worker.uid)
    [body] = stage.api.applied()
    assert body["metadata"]["annotations"] == {POD_ANNOTATION_DIES: "Ascend910-0,Ascend910-1"}
    stage.delete(worker)
    await stage.gone()
    assert [write[:2] for write in stage.api.writes] == [("apply", "pods"), ("delete", "pods")]
    assert stage.api.writes[-1][2] == {"name": "p", "grace_seconds": 0, "uid": "uid-p"}
    assert not stage.host.settings.pod_directory(worker.uid).exists()


async def test_dies_and_address_are_free_before_the_pod_object_goes(stage: Stage) -> None:
    worker = stage.start(pod(dies=16))
    await stage.api.statuses(ready)
    held: list[int] = []
    stage.api.fail = lambda: held.append(len(stage.server.dies.held(worker.uid)))
    stage.delete(worker)
    await stage.gone()
    assert held == [0]


async def test_the_environment_of_a_process(stage: Stage) -> None:
    env = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    worker = stage.start(pod("env", dies=2, restartPolicy="Never", container={"env": env}))
    status = await stage.api.statuses(lambda status: status.get("phase") == "Succeeded")
    variables = dict(line.split("=", 1) for line in stage.log(worker).splitlines())
    assert variables["ASCEND_VISIBLE_DEVICES"] == "0,1"
    assert variables["POD_IP"] == status["podIP"]
    assert variables["PWD"] == variables["HOME"] == str(stage.host.settings.pod_directory(worker.uid) / "home")
    assert variables["OPENBLAS_NUM_THREADS"] == "1"
    assert variables["XCCL_SHM_DIR"] == str(stage.host.settings.shm_dir)
    assert "PYTHONPATH" not in variables
    assert "XDEEPSERVE_MODELS_DIR" not in variables


async def test_a_crash_is_reported_and_backed_off(stage: Stage) -> None:
    container = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    worker = stage.start(pod("echo no checkpoint; exit 78", container=container))
    status = await stage.api.statuses(lambda status: reason(status) == "CrashLoopBackOff")
    [crashed] = status["containerStatuses"]
    assert crashed["restartCount"] == 1  # the first restart comes at once
    assert crashed["lastState"]["terminated"]["exitCode"] == 78
    assert crashed["lastState"]["terminated"]["message"] == "no checkpoint\n"
    assert (stage.log(worker, 0), stage.log(worker, 1)) == ("no checkpoint\n", "no checkpoint\n")
    assert ("create", "events") in [write[:2] for write in stage.api.writes]


async def test_restarts_go_on_after_the_back_off(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "BACKOFF_FIRST_S", 0.01)
    stage.start(pod("exit 1"))
    await stage.api.statuses(lambda status: restart_count(status) >= 3)


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (3, "Failed")])
async def test_a_pod_that_ends_gives_everything_back(stage: Stage, code: int, phase: str) -> None:
    worker = stage.start(pod(f"exit {code}", dies=3, restartPolicy="Never"))
    status = await stage.api.statuses(lambda status: status.get("phase") == phase)
    assert shown(status)["terminated"]["exitCode"] == code
    assert worker.dies == ()


async def test_init_containers_run_one_by_one_before_the_others(stage: Stage) -> None:
    scratch = {"volumeMounts": [{"name": "v", "mountPath": "/scratch"}]}
    init = [
        {"name": f"i{number}", "command": ["sh", "-c", f"echo {number} >> /scratch/log"], **scratch}
        for number in (1, 2)
    ]
    volumes = [{"name": "v", "emptyDir": {}}]
    whole = pod("cat /scratch/log", restartPolicy="Never", initContainers=init, volumes=volumes, container=scratch)
    worker = stage.start(whole)
    status = await stage.api.statuses(lambda status: status.get("phase") == "Succeeded")
    assert [item["ready"] for item in status["initContainerStatuses"]] == [True, True]
    assert stage.log(worker) == "1\n2\n"


async def test_a_failed_init_container_ends_a_pod_that_never_restarts(stage: Stage) -> None:
    init = [{"name": "i", "command": ["sh", "-c", "exit 1"]}]
    stage.start(pod(initContainers=init, restartPolicy="Never"))
    status = await stage.api.statuses(lambda status: status.get("phase") == "Failed")
    assert shown(status) == {"waiting": {"reason": "ContainerCreating"}}


async def test_a_missing_secret_is_named_and_found_when_it_comes(stage: Stage) -> None:
    env = [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "control", "key": "token"}}}]
    stage.start(pod(container={"env": env}))
    status = await stage.api.statuses(lambda status: reason(status) == "CreateContainerConfigError")
    assert shown(status)["waiting"]["message"] == "Secret 'control' was not found"
    stage.api.objects["secrets", "control"] = {"data": {"token": "eA=="}}
    assert ready(await stage.api.statuses(ready))


async def test_a_missing_volume_holds_the_pod_back(stage: Stage) -> None:
    stage.start(pod(volumes=[{"name": "v", "configMap": {"name": "cm"}}]))
    status = await stage.api.statuses(lambda status: reason(status) == "ContainerCreating")
    assert "ConfigMap 'cm' was not found" in shown(status)["waiting"]["message"]
    stage.api.objects["configmaps", "cm"] = {"data": {}}
    await stage.api.statuses(ready)


async def test_a_command_that_does_not_exist(stage: Stage) -> None:
    stage.start(pod(restartPolicy="Never", container={"command": ["no-such-command"]}))
    status = await stage.api.statuses(lambda status: status.get("phase") == "Failed")
    assert shown(status)["terminated"]["exitCode"] == 128
    assert "no-such-command: cannot be started" in shown(status)["terminated"]["message"]


async def test_a_failed_liveness_probe_restarts_the_container(stage: Stage) -> None:
    probe = {"exec": {"command": ["test", "!", "-e", "sick"]}, "periodSeconds": 0.02, "failureThreshold": 2}
    worker = stage.start(pod(FOREVER, terminationGracePeriodSeconds=0, container={"livenessProbe": probe}))
    await stage.api.statuses(ready)
    home = stage.host.settings.pod_directory(worker.uid) / "home"
    (home / "sick").touch()
    await stage.api.statuses(lambda status: restart_count(status) == 1)


async def test_a_startup_probe_comes_first(stage: Stage) -> None:
    startup = {"exec": {"command": ["test", "-e", "up"]}, "failureThreshold": 100}
    readiness = {"exec": {"command": ["true"]}}
    worker = stage.start(pod(container={"startupProbe": startup, "readinessProbe": readiness}))
    status = await stage.api.statuses(lambda status: "running" in shown(status))
    assert (status["containerStatuses"][0]["started"], ready(status)) == (False, False)
    (stage.host.settings.pod_directory(worker.uid) / "home" / "up").touch()
    status = await stage.api.statuses(ready)
    assert status["containerStatuses"][0]["started"] is True


async def test_too_few_dies_fail_the_pod_as_the_kubelet_does(stage: Stage) -> None:
    stage.server.unhealthy = frozenset({1})
    stage.start(pod(dies=16))
    status = await stage.api.statuses(lambda status: status.get("phase") == "Failed")
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "requested 16 dies, 15 healthy ones are free" in status["message"]


async def test_a_broken_die_keeps_its_container_down_until_it_is_mended(stage: Stage) -> None:
    worker = stage.start(pod(dies=1))
    await stage.api.statuses(ready)
    stage.server.unhealthy = frozenset({0})
    worker.signal(signal.SIGKILL)
    stage.server.changes.notify()
    status = await stage.api.statuses(lambda status: reason(status) == "RunContainerError")
    assert shown(status)["waiting"]["message"] == "die Ascend910-0 of pod-a-910c-0 is unhealthy"
    assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 137
    stage.server.unhealthy = frozenset()
    stage.server.changes.notify()
    await stage.api.statuses(ready)


async def test_a_lost_server_writes_nothing_and_goes_on_when_it_is_back(stage: Stage) -> None:
    worker = stage.start(pod())
    await stage.api.statuses(ready)
    writes = len(stage.api.writes)
    stage.server.lost = True
    worker.signal(signal.SIGKILL)
    [process] = stage.host.processes
    await process.exited
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(stage.api.writes) == writes
    stage.server.lost = False
    stage.server.changes.notify()
    status = await stage.api.statuses(lambda status: restart_count(status) == 1)
    assert status["phase"] == "Running"


async def test_deletion_on_a_lost_server_is_confirmed_when_it_is_back(stage: Stage) -> None:
    worker = stage.start(pod())
    await stage.api.statuses(ready)
    stage.server.lost = True
    worker.signal(signal.SIGKILL)
    stage.delete(worker)
    [process] = stage.host.processes
    await process.exited
    for _ in range(20):
        await asyncio.sleep(0)
    assert ("delete", "pods") not in [write[:2] for write in stage.api.writes]
    stage.server.lost = False
    stage.server.changes.notify()
    await stage.gone()
    assert ("delete", "pods") in [write[:2] for write in stage.api.writes]


@pytest.mark.parametrize("lost", [False, True])
async def test_a_pod_that_vanished_is_killed_at_once(stage: Stage, lost: bool) -> None:
    worker = stage.start(pod("trap '' TERM; " + FOREVER, dies=1))
    await stage.api.statuses(ready)
    stage.server.lost = lost
    worker.vanish()
    await stage.gone()
    assert worker.dies == ()
    assert ("delete", "pods") not in [write[:2] for write in stage.api.writes]


async def test_a_new_agent_takes_a_pod_over(stage: Stage) -> None:
    first = stage.start(pod(dies=2))
    await stage.api.statuses(ready)
    [body] = stage.api.applied()
    stage.tasks.pop().cancel()
    await asyncio.gather(*(process.stop(0) for process in list(stage.host.processes)))
    seen = copy.deepcopy(first.pod) | {"status": copy.deepcopy(body["status"])}
    seen["metadata"]["annotations"] = body["metadata"]["annotations"]
    stage.host.addresses.release(first.uid)
    stage.server.dies.release(first.uid)
    second = stage.start(seen)
    status = await stage.api.statuses(lambda status: restart_count(status) == 1)
    assert status["podIP"] == body["status"]["podIP"]
    assert second.dies == (0, 1)
    assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 137


async def test_an_annotation_that_no_agent_wrote_gives_no_dies(stage: Stage) -> None:
    stage.server.unhealthy = frozenset({0})
    claiming = pod(dies=1)
    claiming["metadata"]["annotations"] = {POD_ANNOTATION_DIES: "Ascend910-0"}
    stage.start(claiming)
    await stage.api.statuses(ready)
    assert stage.api.applied()[-1]["metadata"]["annotations"] == {POD_ANNOTATION_DIES: "Ascend910-1"}


async def test_a_finished_pod_is_not_run_again(stage: Stage) -> None:
    done = pod("exit 0") | {"status": {"phase": "Succeeded"}}
    worker = stage.start(done)
    stage.delete(worker)
    await stage.gone()
    assert [write[:2] for write in stage.api.writes] == [("delete", "pods")]


async def test_writes_survive_an_api_server_that_fails_for_a_while(stage: Stage) -> None:
    failures = [ApiError(503, "Unavailable", "later"), TimeoutError(), ConnectionResetError()]
    stage.api.fail = lambda: failures.pop() if failures else None
    stage.start(pod())
    await stage.api.statuses(ready)
    assert not failures


async def test_a_condition_that_somebody_else_turned_is_written_again(stage: Stage) -> None:
    worker = stage.start(pod())
    status = await stage.api.statuses(ready)
    await asyncio.sleep(0)
    seen = copy.deepcopy(worker.pod) | {"status": copy.deepcopy(status)}
    for condition in seen["status"]["conditions"]:
        condition["status"] = "False"
    stale, fresh = copy.deepcopy(seen), copy.deepcopy(seen)
    stale["metadata"]["resourceVersion"], fresh["metadata"]["resourceVersion"] = "0", "99"
    worker.update(stale)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(stage.api.applied()) == 1
    worker.update(fresh)
    await stage.api.until(lambda: len(stage.api.applied()) == 2)
    assert ready(stage.api.last())


async def test_a_specification_that_makes_no_sense_fails_the_pod(stage: Stage) -> None:
    stage.start(pod(container={"volumeMounts": [{"name": "nowhere", "mountPath": "/x"}]}))
    status = await stage.api.statuses(lambda status: status.get("phase") == "Failed")
    assert status["reason"] == "UnexpectedError"
