"""Processes are told apart by number and start time, and stopped for sure."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from xdeepserve_cluster import processes
from xdeepserve_cluster.processes import ProcessId

DEAF = ["/bin/sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 0.05; done"]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        yield process
        process.kill()


def test_a_recycled_number_is_never_killed(sleeper: subprocess.Popen[bytes]) -> None:
    real = processes.identify(sleeper.pid)
    assert real is not None
    earlier = ProcessId(real.pid, real.start - 1)
    assert not earlier.alive()
    assert processes.stop([earlier], grace_s=0.1) == []
    assert real.alive()
    assert sleeper.poll() is None


@pytest.mark.parametrize("pid", [-1, 0, 2**22 + 1, 2**70])
def test_impossible_numbers_do_no_harm(pid: int) -> None:
    assert processes.stop([ProcessId(pid, 1)], grace_s=0.1) == []


def test_a_zombie_is_not_alive(sleeper: subprocess.Popen[bytes]) -> None:
    process = processes.identify(sleeper.pid)
    assert process is not None
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has waited for it
    assert not process.alive()


def test_one_that_ignores_term_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = processes.spawn(DEAF, log, os.environ)
    while "deaf" not in log.read_text():
        time.sleep(0.005)
    assert processes.stop([process], grace_s=0.1) == []
    assert not process.alive()


def test_stopping_waits_for_all_and_no_longer(tmp_path: Path) -> None:
    group = [processes.spawn(["/bin/sleep", "60"], tmp_path / "log", os.environ) for _ in range(3)]
    began = time.monotonic()
    assert processes.stop(group, grace_s=30) == []
    assert time.monotonic() - began < 5
    assert not any(process.alive() for process in group)


def test_a_spawned_process_has_its_own_session_and_usual_signals(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = "cut -d' ' -f1,6 /proc/$$/stat; grep SigIgn /proc/$$/status; exit 3"
    process = processes.spawn(["/bin/sh", "-c", script], log, os.environ)
    code = None
    while code is None:
        code = processes.reap(process)
        time.sleep(0.005)
    assert code == 3
    numbers, ignored = log.read_text().splitlines()
    assert len(set(numbers.split())) == 1
    assert not int(ignored.split()[1], 16) & 1 << (signal.SIGPIPE - 1)
    assert processes.reap(process) is None


def test_marked_processes_are_found_by_the_exact_mark(tmp_path: Path) -> None:
    environ = {"PATH": "/bin", "CLUSTER": str(tmp_path / "a")}
    process = processes.spawn(["/bin/sleep", "60"], tmp_path / "log", environ)
    try:
        assert processes.marked("CLUSTER", str(tmp_path / "a")) == [process]
        assert processes.marked("CLUSTER", str(tmp_path)) == []
        assert processes.command_line(process) == ["/bin/sleep", "60"]
    finally:
        processes.stop([process], grace_s=1)


def test_a_missing_program_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        processes.spawn(["/nowhere/at-all"], tmp_path / "log", os.environ)
