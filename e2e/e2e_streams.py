"""Streams that are running while something breaks, and what must be true of them afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xdeepserve_cluster import processes
from xdeepserve_cluster.controlplane import Cluster, status
from xdeepserve_cluster.controlplane.layout import MARKER
from xdeepserve_demo.client import verify
from xdeepserve_demo.install import NAMESPACE
from xdeepserve_demo.load import Load
from xdeepserve_demo.reference import Reference
from xdeepserve_demo.session import MODEL, Session

PROMPTS = [f"Tell me about expert number {number}." for number in range(6)]
TOKENS = 100
WORKERS = 4
HEAL_SECONDS = 60.0  # on a machine that is busy with other things
Object = dict[str, Any]


@dataclass
class Outage:
    """What happened since ``began`` (``time.monotonic``) to a deployment under load."""

    session: Session
    load: Load
    began: float = 0.0

    def strikes(self) -> None:
        """From now on the clock runs."""
        self.began = time.monotonic()

    async def seen(self) -> float:
        """Waits until the deployment was not Ready; seconds since it was struck."""
        deployment = self.session.deployment
        await deployment.until(lambda _: bool(self._turns("False")), "seen to be broken", HEAL_SECONDS)
        return self._turns("False")[0]

    async def healed(self) -> float:
        """Waits until the deployment is Ready again after it was not; seconds since it was struck."""
        await self.seen()
        await self.session.endpoint(HEAL_SECONDS)
        return self._turns("True")[-1]

    async def served(self) -> float:
        """Waits for the first completion begun afterwards, wherever the API is now; seconds since it was struck."""
        self.load.endpoint = await self.session.endpoint(HEAL_SECONDS)
        return (await self.load.first_success_after(self.began, HEAL_SECONDS)).ended - self.began

    def _turns(self, status: str) -> list[float]:
        """When Ready became so, in seconds since it was struck."""
        turns = self.session.deployment.transitions
        return [when - self.began for when, state, _ in turns if state == status and when > self.began]


@asynccontextmanager
async def under_load(session: Session, reference: Reference) -> AsyncIterator[Outage]:
    """Streams that run inside the block; afterwards each of them must have been right, or have said to try again."""
    load = Load(await session.endpoint(), MODEL, PROMPTS, TOKENS, WORKERS)
    streaming = asyncio.create_task(load.run())
    try:
        await load.first_success_after(0.0, HEAL_SECONDS)
        yield Outage(session, load)
    finally:
        load.stop()
        await streaming
    results = [attempt.result for attempt in load.attempts]
    expected = [await asyncio.to_thread(reference.greedy, one.prompt_token_ids, TOKENS) for one in results]
    verdict = verify(results, expected)
    assert verdict.violations == []
    assert verdict.ok > 0


def errors(load: Load) -> set[str]:
    """Codes of the errors that streams ended with."""
    return {attempt.result.error.code for attempt in load.attempts if attempt.result.error}


def kill_pod(cluster: Cluster, pod: str, module: str) -> None:
    """SIGKILL to the processes of a pod that run a Python module."""
    struck = [process for process in _processes(cluster, pod) if module in processes.command_line(process)]
    assert struck, f"no {module} runs in pod {pod}"
    for process in struck:
        os.kill(process.pid, signal.SIGKILL)


def kill_component(cluster: Cluster, name: str) -> None:
    """SIGKILL to a component of the control plane, or to the agent."""
    components = status(cluster.name, root=cluster.directory.parent).components
    pid = next(component.pid for component in components if component.name == name)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


async def kill_operator(served: Session) -> None:
    """SIGKILL to the operator."""
    pods = await served.tools.get("pods", "--namespace", NAMESPACE)
    for pod in pods["items"]:
        kill_pod(served.cluster, pod["metadata"]["name"], "xdeepserve_operator")


async def operator_leads(served: Session) -> None:
    """Waits until an operator has renewed its Lease."""

    async def renewal() -> str:
        lease = await served.tools.get("lease", "xdeepserve-operator", "--namespace", NAMESPACE)
        return str(lease["spec"]["renewTime"])

    before = await renewal()

    async def renewed() -> bool:
        return await renewal() != before

    await until(renewed)


async def until(holds: Callable[[], Any], seconds: float = HEAL_SECONDS) -> None:
    """Waits for something that no event tells of."""
    async with asyncio.timeout(seconds):
        while not await holds():  # noqa: ASYNC110
            await asyncio.sleep(0.1)


def _processes(cluster: Cluster, pod: str) -> list[processes.ProcessId]:
    wanted = f"HOSTNAME={pod}".encode()
    marked = processes.marked(MARKER, str(cluster.directory))
    return [one for one in marked if wanted in Path(f"/proc/{one.pid}/environ").read_bytes().split(b"\0")]
