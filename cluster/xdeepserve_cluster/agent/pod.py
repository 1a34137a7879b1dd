"""Runs one pod from its binding to its end.

    admit (address, dies) -> volumes -> init containers, one by one -> containers, all at once -> deletion -> gone

Dies and address are settled before anything else and go back when the last process is dead, before the pod object
goes: the scheduler cannot send anybody to them earlier. A pod whose object vanished (forced deletion) is killed
without grace. On a lost server everything is dead and nothing is written until it comes back. All that is known about
a pod can be read back from its object, so a new agent goes on where a dead one stopped.
"""

from __future__ import annotations

import asyncio
import logging
import signal

from xdeepserve_cluster.agent.changes import Changes
from xdeepserve_cluster.agent.container import RETRY_FIRST_S, RETRY_LAST_S, ContainerRunner
from xdeepserve_cluster.agent.devices import NoDies, split_dies, wanted_dies
from xdeepserve_cluster.agent.events import PodEvents
from xdeepserve_cluster.agent.host import Host, ServerState
from xdeepserve_cluster.agent.lifecycle import Record, init_policy
from xdeepserve_cluster.agent.logs import ContainerLogs
from xdeepserve_cluster.agent.podspec import ConfigError
from xdeepserve_cluster.agent.publisher import StatusPublisher
from xdeepserve_cluster.agent.retries import insist
from xdeepserve_cluster.agent.sandbox import Sandbox, remove_directory
from xdeepserve_cluster.agent.servers import HOST_IP
from xdeepserve_cluster.agent.status import PodFacts, restored
from xdeepserve_operator.api import names
from xdeepserve_operator.runtime.kube import UNREACHABLE, ApiError, Object
from xdeepserve_operator.runtime.resources import PODS

logger = logging.getLogger(__name__)
FORCED_GRACE_S = 0.0


class PodWorker:
    """One pod on one of the servers; `run` is its life."""

    def __init__(self, host: Host, server: ServerState, pod: Object) -> None:
        self.pod, self.server, self.uid = pod, server, str(pod["metadata"]["uid"])
        self._host = host
        self._vanished = False
        self._changes = Changes()
        self._facts = PodFacts(host.clock())
        self._events = PodEvents(host, pod)
        self._publisher = StatusPublisher(host, server, lambda: self.pod, self._facts)
        self._init: list[ContainerRunner] = []
        self._main: list[ContainerRunner] = []

    @property
    def key(self) -> str:
        return f"{self.pod['metadata']['namespace']}/{self.pod['metadata']['name']}"

    @property
    def runners(self) -> list[ContainerRunner]:
        """All its containers."""
        return [*self._init, *self._main]

    @property
    def dies(self) -> tuple[int, ...]:
        """The dies that it holds."""
        return self.server.dies.held(self.uid)

    def logs(self, container: str) -> tuple[ContainerLogs, Record] | None:
        """The logs and the state of a container; None if the pod has none of that name."""
        for runner in self.runners:
            if runner.record.name == container:
                return runner.logs, runner.record
        status: Object = self.pod.get("status", {})
        statuses = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
        for item in [*self.pod["spec"].get("initContainers", []), *self.pod["spec"]["containers"]]:
            if item["name"] == container:
                directory = self._host.settings.pod_directory(self.uid)
                return ContainerLogs(directory, container), restored(item, statuses, self._host.clock())
        return None

    def update(self, pod: Object) -> None:
        """Its object changed."""
        self.pod = pod
        self._changes.notify()
        self._publisher.observed(pod)
        if pod["spec"].get("readinessGates"):
            self._publisher.changed()

    def vanish(self) -> None:
        """Its object is gone."""
        self._vanished = True
        self.signal(signal.SIGKILL)
        self._changes.notify()
        self.server.changes.notify()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to all its processes."""
        for runner in self.runners:
            runner.signal(number)

    def restore(self) -> None:
        """Takes back the address and the dies that its object shows; before any new pod is admitted."""
        address = self.pod.get("status", {}).get("podIP")
        if self._completed() or not address:  # without an address no agent had it, whatever its annotations say
            return
        self._host.addresses.restore(self.uid, address)
        annotation = self.pod["metadata"].get("annotations", {}).get(names.POD_ANNOTATION_DIES)
        self.server.dies.restore(self.uid, names.parse_dies(annotation))

    async def run(self) -> None:
        """From binding to the end. When it is cancelled, the processes are left to whoever does that."""
        tasks = [asyncio.create_task(self._live()), asyncio.create_task(self._publisher.run())]
        try:
            await self._changes.until(self._ending)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        grace_s = float(self.pod["metadata"].get("deletionGracePeriodSeconds", FORCED_GRACE_S))
        await asyncio.gather(*(runner.stop(grace_s) for runner in self.runners))
        self._release()
        await self.server.changes.until(lambda: not self.server.lost or self._vanished)
        if not self._vanished:
            await self._confirm()
        remove_directory(self._host.settings.pod_directory(self.uid))

    async def _live(self) -> None:
        if self._completed() or self._ending():
            return
        try:
            sandbox = self._admit()
            if sandbox:
                await self._run_containers(sandbox)
        except Exception as error:  # whatever a specification provokes must not leave a pod that hangs for ever
            logger.exception("pod %s failed", self.key)
            self._refuse("UnexpectedError", f"{type(error).__name__}: {error}")
        for runner in self.runners:
            await runner.stop(FORCED_GRACE_S)
        self._release()
        self._publisher.changed()

    def _admit(self) -> Sandbox | None:
        """Settles address and dies; None if the server cannot take the pod."""
        spec, wanted = self.pod["spec"], wanted_dies(self.pod)
        if any(item.get("restartPolicy") for item in spec.get("initContainers", [])):
            self._refuse("UnexpectedAdmissionError", "restartable init containers do not run on emulated servers")
            return None
        if sum(wanted.values()) != len(self.dies):
            self.server.dies.release(self.uid)
            try:
                self.server.dies.allocate(self.uid, sum(wanted.values()), self.server.unhealthy)
            except NoDies as error:
                message = f"Allocate failed due to {error} on {self.server.server.name}, which is unexpected"
                self._refuse("UnexpectedAdmissionError", message)
                return None
        self._facts.address = HOST_IP if spec.get("hostNetwork") else self._host.addresses.take(self.uid)
        sandbox = Sandbox(
            self._host, self.server, self._final_pod(self._facts.address), self._publisher.changed, self._events.warn
        )
        self._make_runners(sandbox, split_dies(wanted, self.dies))
        return sandbox

    def _final_pod(self, address: str) -> Object:
        metadata = dict(self.pod["metadata"])
        if dies := self.dies:
            self._publisher.annotations = {names.POD_ANNOTATION_DIES: ",".join(map(names.die_name, dies))}
            metadata["annotations"] = {**metadata.get("annotations", {}), **self._publisher.annotations}
        return {**self.pod, "metadata": metadata, "status": {"podIP": address, "hostIP": HOST_IP}}

    def _make_runners(self, sandbox: Sandbox, dies: dict[str, tuple[int, ...]]) -> None:
        spec, status, now = self.pod["spec"], self.pod.get("status", {}), self._host.clock()
        policy = spec.get("restartPolicy", "Always")
        for item in spec.get("initContainers", []):
            record = restored(item, status.get("initContainerStatuses", []), now)
            self._facts.init.append(record)
            self._init.append(ContainerRunner(sandbox, item, record, init_policy(policy)))
        for item in spec["containers"]:
            record = restored(item, status.get("containerStatuses", []), now)
            self._facts.main.append(record)
            self._main.append(ContainerRunner(sandbox, item, record, policy, dies.get(item["name"], ())))

    async def _run_containers(self, sandbox: Sandbox) -> None:
        await self.server.changes.until(lambda: not self.server.lost)
        await self._prepare(sandbox)
        tokens = asyncio.create_task(sandbox.keep_tokens())
        try:
            for runner in self._init:
                if not await runner.run():
                    return
            async with asyncio.TaskGroup() as group:
                for runner in self._main:
                    group.create_task(runner.run())
        finally:
            tokens.cancel()

    async def _prepare(self, sandbox: Sandbox) -> None:
        wait = RETRY_FIRST_S
        while True:
            try:
                return await sandbox.prepare()
            except (ConfigError, ApiError, *UNREACHABLE) as error:
                message = f"volumes cannot be set up: {error}"
            sandbox.warn("FailedMount", message)
            for runner in self.runners:
                runner.record.wait("ContainerCreating", message)
            sandbox.changed()
            await asyncio.sleep(wait)
            wait = min(2 * wait, RETRY_LAST_S)

    async def _confirm(self) -> None:
        """The pod's end: its last status if somebody still waits for it, and the deletion."""
        api, metadata = self._host.api, self.pod["metadata"]
        if metadata.get("finalizers"):
            await self._publisher.publish(pointless=lambda: self._vanished)
        await insist(
            lambda: api.delete(PODS, metadata["name"], metadata["namespace"], grace_seconds=0, uid=self.uid),
            f"deletion of pod {self.key}",
            pointless=lambda: self._vanished,
        )

    def _refuse(self, reason: str, message: str) -> None:
        self._facts.refused = (reason, message)

    def _release(self) -> None:
        self.server.dies.release(self.uid)
        self._host.addresses.release(self.uid)

    def _completed(self) -> bool:
        return self.pod.get("status", {}).get("phase") in ("Succeeded", "Failed")

    def _ending(self) -> bool:
        return self._vanished or "deletionTimestamp" in self.pod["metadata"]
