"""Real processes: their ends, their children, their logs."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from xdeepserve_cluster.agent.podspec import Launch
from xdeepserve_cluster.agent.process import ContainerProcess
from xdeepserve_cluster.processes import identify


def start(script: str, log: Path) -> ContainerProcess:
    return ContainerProcess(Launch(("sh", "-c", script), {"PATH": "/usr/bin:/bin"}, log.parent), log)


def until(holds: Callable[[], bool]) -> None:
    """Another process does it; nothing in this one's loop tells when."""
    deadline = time.monotonic() + 5
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 78", 78), ("kill -9 $$", 137)])
async def test_exit_codes(script: str, code: int, tmp_path: Path) -> None:
    assert await start(script, tmp_path / "log").exited == code


async def test_both_outputs_go_to_the_log_and_runs_are_appended(tmp_path: Path) -> None:
    log = tmp_path / "c" / "0.log"
    log.parent.mkdir()
    await start("echo out; echo err >&2; pwd", log).exited
    await start("echo again", log).exited
    assert log.read_text() == f"out\nerr\n{log.parent}\nagain\n"


async def test_term_is_enough_for_the_polite(tmp_path: Path) -> None:
    process = start("trap 'exit 5' TERM; echo up; while :; do sleep 0.01; done", tmp_path / "log")
    until(lambda: "up" in (tmp_path / "log").read_text())
    assert await process.stop(5) == 5


async def test_one_that_ignores_term_is_killed_after_its_grace(tmp_path: Path) -> None:
    process = start("trap '' TERM; echo up; while :; do sleep 0.01; done", tmp_path / "log")
    until(lambda: "up" in (tmp_path / "log").read_text())
    started = time.monotonic()
    assert await process.stop(0.1) == 137
    assert 0.1 <= time.monotonic() - started < 2


async def test_children_go_with_their_container(tmp_path: Path) -> None:
    """Also those that ignore TERM, whose parent ends at once by itself."""
    log = tmp_path / "log"
    process = start("(trap '' TERM; echo child $(exec sh -c 'echo $PPID'); exec sleep 60) & wait $!", log)
    until(lambda: "child" in log.read_text())
    child = identify(int(log.read_text().split()[1]))
    assert child is not None
    assert child.alive()
    os.kill(process.pid, signal.SIGTERM)
    assert await process.exited == 128 + signal.SIGTERM
    until(lambda: not child.alive())


async def test_signals_after_the_end_hit_nobody(tmp_path: Path) -> None:
    process = start("exit 0", tmp_path / "log")
    await process.exited
    process.signal(signal.SIGKILL)
    assert await process.stop(1) == 0


async def test_a_cancelled_wait_does_not_lose_the_end(tmp_path: Path) -> None:
    process = start("sleep 60", tmp_path / "log")
    stopping = asyncio.create_task(process.stop(60))
    await asyncio.sleep(0)
    stopping.cancel()
    assert await process.stop(0) == 128 + signal.SIGTERM or process.exited.result() == 137


async def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ContainerProcess(Launch(("no-such-command",), {"PATH": "/bin"}, tmp_path), tmp_path / "log")
