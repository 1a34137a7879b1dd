"""Processes that outlive the command that started them, and are told apart from later ones of the same number.

A process is named by its id and its start time (clock ticks since boot, field 22 of `/proc/PID/stat`), a pair
that the kernel does not give out twice. Signals go through a pidfd that is opened first and compared second: between
the comparison and the signal the number cannot pass to another process, so a recycled id is never killed.
Waiting is for an event too: a pidfd becomes readable when its process ends.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

KILL_WAIT_S = 5.0


class ProcessId(NamedTuple):
    """A process for good: `start` is its start time in clock ticks since boot."""

    pid: int
    start: int

    def alive(self) -> bool:
        """Whether this very process runs; one that ended but was not waited for (a zombie) does not."""
        stat = _stat(self.pid)
        return stat is not None and stat[1] == self.start and stat[0] not in "ZX"


def identify(pid: int) -> ProcessId | None:
    """The process that has the number `pid` now, or None."""
    stat = _stat(pid)
    return None if stat is None else ProcessId(pid, stat[1])


def boot_id() -> str:
    """Changes with every boot: start times of different boots are not comparable."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def resident_bytes(process: ProcessId) -> int:
    """Resident memory in bytes; 0 for a process that is gone."""
    try:
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def command_line(process: ProcessId) -> list[str]:
    """The arguments that the process was started with; empty if it is gone."""
    try:
        text = Path(f"/proc/{process.pid}/cmdline").read_text(errors="surrogateescape")
    except OSError:
        return []
    return text.split("\0")[:-1] if process.alive() else []


def spawn(argv: Sequence[str], log: Path, environ: Mapping[str, str]) -> ProcessId:
    """Start `argv` in a session of its own, with both outputs appended to `log` and nothing to read.

    Unlike `subprocess.Popen`, nothing in this process stands for the child: it is meant to outlive us.
    """
    pid = os.posix_spawn(
        argv[0],
        list(argv),
        dict(environ),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores these, and exec would pass that on
    )
    process = identify(pid)  # never None: a child is visible until its parent has waited for it
    assert process is not None
    return process


def reap(process: ProcessId) -> int | None:
    """The exit code of a child that ended (negative: the signal); None if it runs or is not our child."""
    try:
        pid, status = os.waitpid(process.pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if pid else None


def stop(processes: Iterable[ProcessId], grace_s: float) -> list[ProcessId]:
    """TERM to all at once, KILL to those that are left after `grace_s` seconds; returns those that still live.

    A process that ended before, or whose number now belongs to another one, is left alone.
    """
    running = {descriptor: process for process in processes if (descriptor := _open(process)) is not None}
    try:
        for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, KILL_WAIT_S)):
            _signal(running, number)
            _wait_gone(running, wait_s)
        return list(running.values())
    finally:
        for descriptor in running:
            os.close(descriptor)


def marked(variable: str, value: str) -> list[ProcessId]:
    """All processes, this one apart, that were started with `variable=value` in their environment.

    Finds what a command started and was killed before it could write down.
    """
    wanted = f"{variable}={value}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        process = identify(int(entry.name))
        try:
            environ = (entry / "environ").read_bytes()
        except OSError:  # gone, or another user's
            continue
        if process and wanted in environ.split(b"\0"):
            found.append(process)
    return found


def _stat(pid: int) -> tuple[str, int] | None:
    """State letter and start time; the command name in between may itself hold blanks and parentheses."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0], int(fields[19])


def _open(process: ProcessId) -> int | None:
    try:
        descriptor = os.pidfd_open(process.pid)
    except (OSError, OverflowError):
        return None
    if process.alive():
        return descriptor
    os.close(descriptor)
    reap(process)
    return None


def _signal(running: Mapping[int, ProcessId], number: signal.Signals) -> None:
    for descriptor in running:
        try:
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            continue


def _wait_gone(running: dict[int, ProcessId], wait_s: float) -> None:
    """Take the processes that end within `wait_s` seconds out of `running`."""
    deadline = time.monotonic() + wait_s
    poller = select.poll()
    for descriptor in running:
        poller.register(descriptor, select.POLLIN)
    while running and (left := deadline - time.monotonic()) > 0:
        for descriptor, _ in poller.poll(left * 1000):
            poller.unregister(descriptor)
            os.close(descriptor)
            reap(running.pop(descriptor))
