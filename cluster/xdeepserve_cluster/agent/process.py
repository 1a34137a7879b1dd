"""One run of a container as a process. Thin I/O over the kernel; no threads, no polling.

The process leads a session and a process group of its own, so signals reach its children too. Its end is an event (a
pidfd turns readable). What is left of its group is then killed before the process is waited for: until then the
kernel gives its number to nobody else. A child that leaves the session escapes this; the mark in its environment
finds it when the agent stops or starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from pathlib import Path

from xdeepserve_cluster.agent.podspec import Launch


class ContainerProcess:
    """A running process; `exited` gets its exit code, 128 + n after signal n."""

    def __init__(self, launch: Launch, log: Path, *, append: bool = True) -> None:
        """Starts it, with both outputs in `log`. Raises OSError if it cannot be started."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab" if append else "wb") as output:
            self._process = subprocess.Popen(
                launch.argv,
                env=launch.environ,
                cwd=launch.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._descriptor = os.pidfd_open(self._process.pid)
        asyncio.get_running_loop().add_reader(self._descriptor, self._reap)

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the whole group; nothing happens once it ended."""
        if not self.exited.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    async def stop(self, grace_s: float) -> int:
        """TERM, then KILL after `grace_s` seconds; returns the exit code."""
        if grace_s > 0:
            self.signal(signal.SIGTERM)
            await asyncio.wait([self.exited], timeout=grace_s)
        self.signal(signal.SIGKILL)
        return await asyncio.shield(self.exited)

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        code = self._process.wait()
        if not self.exited.done():
            self.exited.set_result(code if code >= 0 else 128 - code)
