"""All servers in one process: watches pods, nodes and faults, and hands what happens to those who act on it.

Start: what a killed agent left running is ended (every process of a pod carries a mark in its environment), nodes are
registered, the pods that exist get back their addresses and dies, and only then new ones are admitted. Processes of
a dead agent are not adopted: their exit codes would be lost; their containers count as killed and start again by
their policy. Stop: no pod is touched in the API; all processes end within 5 s, and none is left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from xccl import sweep
from xdeepserve_cluster import processes
from xdeepserve_cluster.agent.host import POD_MARKER, Host
from xdeepserve_cluster.agent.injector import Injector
from xdeepserve_cluster.agent.leases import Heartbeats
from xdeepserve_cluster.agent.nodes import NodeKeeper
from xdeepserve_cluster.agent.pod import PodWorker
from xdeepserve_cluster.agent.sandbox import remove_directory
from xdeepserve_operator.api.names import NODE_LABEL_SUPERPOD
from xdeepserve_operator.runtime.kube import Object
from xdeepserve_operator.runtime.reflector import Key, Reflector, key_of
from xdeepserve_operator.runtime.resources import CRDS, FAULTINJECTIONS, NODES, PODS, Resource

logger = logging.getLogger(__name__)
STOP_GRACE_S = 5.0
SWEEP_AFTER_S = 0.2  # several processes of a pod end together
OnEvent = Callable[[str, Object], None]
FAULT_CRD = f"{FAULTINJECTIONS.plural}.{FAULTINJECTIONS.group}"


class Agent:
    """The servers of one SuperPod."""

    def __init__(self, host: Host, superpod: str, port: int, lease_seconds: int) -> None:
        self._host, self._superpod = host, superpod
        self._workers: dict[Key, PodWorker] = {}
        self._early: dict[Key, Object] | None = {}  # pods seen before all of them were; None afterwards
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._faults: Reflector | None = None
        self._faults_task: asyncio.Task[None] | None = None
        self._nodes = NodeKeeper(host, port)
        self._heartbeats = Heartbeats(host, lease_seconds)
        self._injector = Injector(host, superpod, self._workers.values, self._nodes.mark)
        host.on_start = self._injector.retry
        host.on_exit = self._sweep_soon

    def find(self, namespace: str, name: str) -> PodWorker | None:
        """The worker of a pod."""
        return self._workers.get((namespace, name))

    async def start(self) -> None:
        """Returns when all nodes are registered and the pods that exist are taken over.

        Faults come before pods and nodes: what is broken must not look whole for a moment.
        """
        await self._watch(CRDS, self._on_crd, fields=f"metadata.name={FAULT_CRD}")
        if self._faults:
            await self._faults.synced.wait()
        await self._watch(NODES, self._nodes.on_event, labels=f"{NODE_LABEL_SUPERPOD}={self._superpod}")
        for name in self._host.servers:
            self._nodes.mark(name)
        self._spawn(self._nodes.run())
        self._spawn(self._heartbeats.run())
        await self._watch(PODS, self._on_pod, fields="spec.nodeName!=")
        self._take_over()
        await self._nodes.changes.until(self._nodes.registered)

    async def stop(self) -> None:
        """Stops acting, then ends all processes."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._sweep:
            self._sweep.cancel()
        self._host.on_exit = lambda: None
        await asyncio.gather(*(process.stop(STOP_GRACE_S) for process in list(self._host.processes)))
        end_leftovers(self._host.settings.state_dir)
        sweep(self._host.settings.shm_dir)

    def _on_pod(self, kind: str, pod: Object) -> None:
        key, state = key_of(pod), self._host.servers.get(pod["spec"].get("nodeName", ""))
        if state is None:
            return
        if self._early is not None:
            self._early[key] = pod
            return
        worker = self._workers.get(key)
        if worker and (kind == "DELETED" or worker.uid != pod["metadata"]["uid"]):
            del self._workers[key]
            worker.vanish()
            worker = None
        if kind == "DELETED":
            return
        if worker:
            worker.update(pod)
        else:
            worker = self._workers[key] = PodWorker(self._host, state, pod)
            self._spawn(worker.run())

    def _take_over(self) -> None:
        """The pods that were there before us: those that stay get back what they hold first."""
        early, self._early = self._early or {}, None
        for key, pod in sorted(early.items(), key=lambda item: "deletionTimestamp" in item[1]["metadata"]):
            self._workers[key] = PodWorker(self._host, self._host.servers[pod["spec"]["nodeName"]], pod)
            self._workers[key].restore()
        known = {worker.uid for worker in self._workers.values()}
        for directory in self._host.settings.state_dir.glob("pods/*"):
            if directory.name not in known:
                remove_directory(directory)
        for worker in self._workers.values():
            self._spawn(worker.run())

    def _on_crd(self, kind: str, crd: Object) -> None:
        """The kind FaultInjection comes and goes with the product's charts."""
        states = {item["type"]: item["status"] for item in crd.get("status", {}).get("conditions") or []}
        if kind == "DELETED" and self._faults_task:
            self._faults_task.cancel()
            self._faults_task = None
            self._injector.mend_all()
        elif kind != "DELETED" and states.get("Established") == "True" and not self._faults_task:
            self._faults = Reflector(self._host.api, FAULTINJECTIONS, _guarded(self._injector.on_event))
            self._faults_task = self._spawn(self._faults.run())

    def _sweep_soon(self) -> None:
        """Dead processes leave segments of shared memory behind."""
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_AFTER_S, self._sweep_now)

    def _sweep_now(self) -> None:
        self._sweep = None
        for path in sweep(self._host.settings.shm_dir):
            logger.info("removed shared memory of a dead process: %s", path.name)

    async def _watch(self, resource: Resource, on_event: OnEvent, *, labels: str = "", fields: str = "") -> None:
        """Watches a collection from now on; returns when it was seen once."""
        reflector = Reflector(self._host.api, resource, _guarded(on_event), labels=labels, fields=fields)
        self._spawn(reflector.run())
        await reflector.synced.wait()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            logger.error("a task of the agent failed", exc_info=error)


def _guarded(on_event: OnEvent) -> OnEvent:
    """An object that somebody's code trips over is logged, and does not end the watch.

    Managed fields, the bulk of an object in memory, are dropped on the way: nothing here reads them.
    """

    def guarded(kind: str, obj: Object) -> None:
        obj["metadata"].pop("managedFields", None)
        try:
            on_event(kind, obj)
        except Exception:
            logger.exception("%s %s/%s", kind, *key_of(obj))

    return guarded


def end_leftovers(state_dir: Path) -> None:
    """Ends every process that carries our mark: those of a killed agent, and those that left their session."""
    processes.stop(processes.marked(POD_MARKER, str(state_dir)), 0.0)
