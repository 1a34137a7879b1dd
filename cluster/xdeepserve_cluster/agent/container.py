"""Runs one container of a pod: start, probe, wait for its end, start again as the pod's policy says.

The loop reads as the container's life. Before every start it waits for its hardware: a server that is not lost, dies
that are healthy. The environment is resolved anew each time, so a Secret that was missing is found as soon as it
exists. Cancelling the loop leaves the process running; whoever cancels stops it.
"""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from pathlib import Path

from xdeepserve_cluster.agent import podspec, volumes
from xdeepserve_cluster.agent.lifecycle import Backoff, Record, Running, Terminated, restarts
from xdeepserve_cluster.agent.logs import ContainerLogs, termination_message
from xdeepserve_cluster.agent.looks import look_of
from xdeepserve_cluster.agent.podspec import ConfigError, Launch
from xdeepserve_cluster.agent.probes import Counter, Look, timing, watch
from xdeepserve_cluster.agent.process import ContainerProcess
from xdeepserve_cluster.agent.sandbox import Sandbox
from xdeepserve_cluster.agent.service_account import write_kubeconfig
from xdeepserve_operator.api.names import die_name
from xdeepserve_operator.runtime.kube import UNREACHABLE, ApiError, Object

CANNOT_START = 128  # exit code of a container whose command cannot be executed
RETRY_FIRST_S, RETRY_LAST_S = 0.5, 10.0


class ContainerRunner:
    """One container; `record` is what its status shows, `process` what runs now."""

    def __init__(
        self, sandbox: Sandbox, container: Object, record: Record, policy: str, dies: tuple[int, ...] = ()
    ) -> None:
        self.record = record
        self.process: ContainerProcess | None = None
        self.dies = dies
        self.logs = ContainerLogs(sandbox.directory, container["name"])
        self._sandbox, self._container, self._policy = sandbox, container, policy
        self._backoff = Backoff()
        self._stopping: asyncio.Task[int] | None = None

    async def run(self) -> bool:
        """Runs until it will not be started again; returns whether it succeeded at last."""
        while True:
            state = self.record.state
            if isinstance(state, Terminated):
                if not restarts(self._policy, state.exit_code):
                    return state.exit_code == 0
                await self._hardware()  # before the back-off too: a broken die is the better reason to show
                await self._back_off(state)
            await self._hardware()
            await self._run_once()
            self._sandbox.changed()

    async def stop(self, grace_s: float) -> None:
        """Ends its process, if one runs, and records the end."""
        if self.process:
            self._end(await self.process.stop(grace_s))

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to all its processes."""
        if self.process:
            self.process.signal(number)

    async def _back_off(self, ended: Terminated) -> None:
        if delay := self._backoff.after(ended.finished_at - ended.started_at):
            message = f"back-off {delay:g}s restarting failed container={self.record.name} pod={self._sandbox.name}"
            self.record.wait("CrashLoopBackOff", message)
            self._sandbox.warn("BackOff", message)
            self._sandbox.changed()
            await asyncio.sleep(delay)

    async def _hardware(self) -> None:
        server = self._sandbox.server
        while server.lost or self._broken():
            if broken := self._broken():
                message = f"die {', '.join(map(die_name, broken))} of {server.server.name} is unhealthy"
                self.record.wait("RunContainerError", message)
                self._sandbox.changed()
            await server.changes.until(lambda: not server.lost and not self._broken())

    def _broken(self) -> list[int]:
        return sorted(self._sandbox.server.unhealthy.intersection(self.dies))

    async def _run_once(self) -> None:
        launch, looks = await self._configure()
        sandbox, record = self._sandbox, self.record
        record.run(sandbox.host.clock())
        self._message_file.unlink(missing_ok=True)
        try:
            process = ContainerProcess(launch, self.logs.begin(record.restarts))
        except OSError as error:
            record.end(CANNOT_START, f"{launch.argv[0]}: cannot be started: {error.strerror}", sandbox.host.clock())
            return
        self.process = process
        sandbox.host.started(process)
        if "startupProbe" not in looks:
            self._started()
        sandbox.changed()
        probes = asyncio.create_task(self._probe(process, looks)) if looks else None
        try:
            code = await asyncio.shield(process.exited)
        finally:
            if probes:
                probes.cancel()
        self._end(code)

    async def _configure(self) -> tuple[Launch, dict[str, Look]]:
        wait = RETRY_FIRST_S
        while True:
            try:
                return await self._launch()
            except (ConfigError, ApiError, *UNREACHABLE) as error:
                message = str(error)
            self.record.wait("CreateContainerConfigError", message)
            self._sandbox.warn("Failed", message)
            self._sandbox.changed()
            await asyncio.sleep(wait)
            wait = min(2 * wait, RETRY_LAST_S)

    async def _launch(self) -> tuple[Launch, dict[str, Look]]:
        sandbox, container = self._sandbox, self._container
        objects = await sandbox.read(podspec.references(container))
        mounts = volumes.mounts(container, sandbox.pod, sandbox.directory)
        base = sandbox.host.environ(sandbox.name, sandbox.home, self.dies)
        if kubeconfig := write_kubeconfig(sandbox.host, container, sandbox.pod, sandbox.directory):
            base["KUBECONFIG"] = str(kubeconfig)
        launch = podspec.launch(container, sandbox.pod, objects, mounts, base, sandbox.home)
        looks = {
            kind: look_of(container[kind], container, sandbox.address, launch, self.logs.scratch(kind))
            for kind in ("startupProbe", "livenessProbe", "readinessProbe")
            if container.get(kind)
        }
        return launch, looks

    async def _probe(self, process: ContainerProcess, looks: dict[str, Look]) -> None:
        def counter(kind: str, good: bool) -> Counter:
            return Counter(timing(self._container[kind]), good)

        if look := looks.get("startupProbe"):
            report = partial(self._judge, process, "startupProbe")
            await watch(counter("startupProbe", False), look, report, until_good=True)
            self._started()
            self._sandbox.changed()
        async with asyncio.TaskGroup() as group:
            if look := looks.get("livenessProbe"):
                report = partial(self._judge, process, "livenessProbe")
                group.create_task(watch(counter("livenessProbe", True), look, report, quick=False))
            if look := looks.get("readinessProbe"):
                group.create_task(watch(counter("readinessProbe", False), look, self._set_ready))

    def _started(self) -> None:
        self.record.started = True
        self.record.ready = "readinessProbe" not in self._container

    def _set_ready(self, ready: bool, problem: str) -> None:
        if ready != self.record.ready and isinstance(self.record.state, Running):
            self.record.ready = ready
            if not ready:
                self._sandbox.warn("Unhealthy", f"Readiness probe failed: {problem}")
            self._sandbox.changed()

    def _judge(self, process: ContainerProcess, kind: str, good: bool, problem: str) -> None:
        if good or (self._stopping and not self._stopping.done()):
            return
        seconds = self._container[kind].get("terminationGracePeriodSeconds", self._sandbox.grace_s)
        self._sandbox.warn("Unhealthy", f"{kind} of container {self.record.name} failed, it is restarted: {problem}")
        self._stopping = asyncio.create_task(process.stop(seconds))

    @property
    def _message_file(self) -> Path:
        return self._sandbox.directory / "termination" / self.record.name

    def _end(self, code: int) -> None:
        policy = self._container.get("terminationMessagePolicy", "File")
        message = termination_message(self._message_file, policy, self.logs.path(self.record.restarts), code)
        self.record.end(code, message, self._sandbox.host.clock())
        self.process = None
