"""Carries faults out: strikes processes and hardware within the watch event that asks for it, reports afterwards.

    new -> pending (nothing matches yet; tried again when pods appear) -> struck -> mended (duration over, or deleted)

Killing happens in the event's callback; only the report to the API waits. Effects on the hardware are computed from
all strikes together and set on the servers, whose pods and nodes follow. What was done is read back from the
FaultInjection's status, so a new agent keeps dies broken and servers lost without striking again. A hang strikes the
processes that run now; a process that starts later on that die is well.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field

from pydantic import ValidationError

from xdeepserve_cluster.agent.faults import Strike, Tenant, choose, health_of, no_target, struck, tenant
from xdeepserve_cluster.agent.host import Host
from xdeepserve_cluster.agent.moments import parse_rfc3339, rfc3339_micro
from xdeepserve_cluster.agent.pod import PodWorker
from xdeepserve_cluster.agent.retries import insist
from xdeepserve_operator.api.names import AGENT_FIELD_MANAGER
from xdeepserve_operator.api.v1alpha1.fault import FaultInjectionSpec
from xdeepserve_operator.runtime.kube import UNREACHABLE, ApiError, Object
from xdeepserve_operator.runtime.reflector import Key, key_of
from xdeepserve_operator.runtime.resources import FAULTINJECTIONS, SUPERPODS

logger = logging.getLogger(__name__)
MAX_PODS = 64  # as many as the kind's status may name


@dataclass(eq=False)
class _Case:
    """One FaultInjection."""

    obj: Object
    spec: FaultInjectionSpec
    status: Object = field(default_factory=dict)
    strike: Strike | None = None
    paused: list[PodWorker] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None
    pending: bool = False  # no target yet
    report: Object = field(default_factory=dict)  # the status to show, without times of reports
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)


class Injector:
    """`workers()` are the pods that run; `node_changed(name)` has a server's node written."""

    def __init__(
        self,
        host: Host,
        superpod: str,
        workers: Callable[[], Iterable[PodWorker]],
        node_changed: Callable[[str], None],
    ) -> None:
        self._host, self._superpod = host, superpod
        self._workers, self._node_changed = workers, node_changed
        self._cases: dict[Key, _Case] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def on_event(self, kind: str, obj: Object) -> None:
        """A FaultInjection changed. Its specification never does, so only its first sight and its end matter."""
        key = key_of(obj)
        case = self._cases.get(key)
        if case and (kind == "DELETED" or case.obj["metadata"]["uid"] != obj["metadata"]["uid"]):
            self._mend(self._cases.pop(key))
        if kind != "DELETED" and key not in self._cases:
            self._open(key, obj)

    def mend_all(self) -> None:
        """The kind FaultInjection is gone, and all of them with it."""
        while self._cases:
            self._mend(self._cases.popitem()[1])

    def retry(self) -> None:
        """Pods appeared: what found no target may find one now."""
        for case in self._cases.values():
            if case.pending:
                self._strike(case)

    def _open(self, key: Key, obj: Object) -> None:
        try:
            spec = FaultInjectionSpec.model_validate(obj["spec"])
        except ValidationError as error:
            logger.error("fault %s cannot be read: %s", obj["metadata"]["name"], error)
            return
        case = self._cases[key] = _Case(obj, spec)
        status = obj.get("status", {})
        if status.get("mendedAt"):
            return
        if status.get("injectedAt"):
            case.status = {key: status[key] for key in ("node", "die", "pods", "injectedAt") if key in status}
            self._hit(case, status["node"], status["die"], parse_rfc3339(status["injectedAt"]))
        elif spec.target.superpod:
            self._spawn(self._strike_in_superpod(case, spec.target.superpod))
        else:
            self._strike(case)

    async def _strike_in_superpod(self, case: _Case, name: str) -> None:
        """Another SuperPod's faults are the business of its own servers."""
        try:
            superpod = await self._host.api.get(SUPERPODS, name)
        except (ApiError, *UNREACHABLE) as error:
            self._report(case, "False", "NoTarget", f"SuperPod {name} cannot be read ({error}); create the fault again")
            return
        if superpod["spec"]["superpodId"] == self._superpod and case in self._cases.values():
            self._strike(case)

    def _strike(self, case: _Case) -> None:
        target, kind = case.spec.target, case.spec.fault.type
        servers = {name: state.server.dies for name, state in self._host.servers.items()}
        running = self._tenants()
        health = health_of(other.strike for other in self._cases.values() if other.strike)
        namespace = case.obj["metadata"].get("namespace", "")
        place = choose(kind, target, namespace, servers, running.values(), health)
        case.pending = place is None
        if place is None:
            self._report(case, "False", "NoTarget", no_target(target, servers.keys()))
            return
        now = self._host.clock()
        pods = [pod.key for pod in struck(place, running.values())]
        case.paused = [worker for worker, pod in running.items() if kind == "DieHang" and pod.key in pods]
        self._hit(case, *place, now)
        for worker in case.paused:
            worker.signal(signal.SIGSTOP)
        case.status = {"node": place[0], "die": place[1], "pods": pods[:MAX_PODS], "injectedAt": rfc3339_micro(now)}
        logger.warning("fault %s: %s on %s die %d, pods %s", case.obj["metadata"]["name"], kind, *place, pods)
        self._report(case, "True", "Injected", f"{kind} on {place[0]}")

    def _hit(self, case: _Case, server: str, die: int, at: float) -> None:
        case.strike = Strike(case.spec.fault.type, server, die)
        if seconds := case.spec.duration_seconds:
            left = max(0.0, at + seconds - self._host.clock())
            case.timer = asyncio.get_running_loop().call_later(left, self._expire, case)
        self._set_health()

    def _expire(self, case: _Case) -> None:
        self._mend(case)
        case.status["mendedAt"] = rfc3339_micro(self._host.clock())
        self._report(case, "True", "Injected", "the hardware is whole again")

    def _mend(self, case: _Case) -> None:
        case.strike, case.pending = None, False
        if case.timer:
            case.timer.cancel()
        for worker in case.paused:
            worker.signal(signal.SIGCONT)
        self._set_health()

    def _set_health(self) -> None:
        health = health_of(case.strike for case in self._cases.values() if case.strike)
        for name, state in self._host.servers.items():
            unhealthy, lost = health.unhealthy.get(name, frozenset()), name in health.lost
            if (state.unhealthy, state.lost) != (unhealthy, lost):
                state.unhealthy, state.lost = unhealthy, lost
                for worker in self._workers():
                    if worker.server is state and (lost or unhealthy.intersection(worker.dies)):
                        worker.signal(signal.SIGKILL)
                state.changes.notify()
                self._node_changed(name)

    def _tenants(self) -> dict[PodWorker, Tenant]:
        return {
            worker: tenant(worker.pod, worker.dies)
            for worker in self._workers()
            if any(runner.process for runner in worker.runners)
        }

    def _report(self, case: _Case, status: str, reason: str, message: str) -> None:
        condition = {
            "type": "Injected",
            "status": status,
            "reason": reason,
            "message": message,
            "observedGeneration": case.obj["metadata"].get("generation", 1),
        }
        if case.report.get("conditions") != [condition]:
            case.report = {**case.status, "conditions": [condition]}
            self._spawn(self._write(case, case.status.get("injectedAt", rfc3339_micro(self._host.clock()))))

    async def _write(self, case: _Case, since: str) -> None:
        async with case.writing:
            metadata = {key: case.obj["metadata"][key] for key in ("name", "namespace", "uid")}
            conditions = [{**condition, "lastTransitionTime": since} for condition in case.report["conditions"]]
            body = {"metadata": metadata, "status": {**case.report, "conditions": conditions}}
            api = self._host.api
            await insist(
                lambda: api.apply(FAULTINJECTIONS, body, subresource="status", field_manager=AGENT_FIELD_MANAGER),
                f"status of fault {metadata['name']}",
                pointless=lambda: case not in self._cases.values(),
            )

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
