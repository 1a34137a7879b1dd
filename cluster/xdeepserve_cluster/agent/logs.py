"""Log files of containers: one a run, written by the process itself; the present one and the one before are kept.

Nothing stands between a process and its file, so a crash of the agent loses no line, and a busy log costs the agent
nothing. The price: lines carry no times.
"""

from __future__ import annotations

import os
from pathlib import Path

TERMINATION_MESSAGE_BYTES = 4096
FALLBACK_BYTES, FALLBACK_LINES = 2048, 80
BLOCK = 65536


class ContainerLogs:
    """The log files of one container in a pod's directory."""

    def __init__(self, pod_directory: Path, container: str) -> None:
        self._directory = pod_directory / "logs" / container

    def path(self, run: int) -> Path:
        """The file of run number `run`, counted from 0 (it may not exist)."""
        return self._directory / f"{run}.log"

    def scratch(self, name: str) -> Path:
        """A file beside the logs."""
        return self._directory / f"{name}.out"

    def begin(self, run: int) -> Path:
        """The file for a new run; drops those older than the run before it."""
        if self._directory.is_dir():
            for file in self._directory.iterdir():
                if file.suffix == ".log" and int(file.stem) < run - 1:
                    file.unlink()
        return self.path(run)


def tail(path: Path, size: int) -> str:
    """The last `size` bytes of a file as text; empty if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read(size).decode(errors="replace")
    except FileNotFoundError:
        return ""


def offset_of_last_lines(path: Path, lines: int) -> int:
    """Where the last `lines` lines of a file begin, found backwards in blocks."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        if lines <= 0:
            return end
        position = end - 1  # a newline at the very end begins no line
        while position > 0:
            start = max(0, position - BLOCK)
            file.seek(start)
            block = file.read(position - start)
            at = len(block)
            while (at := block.rfind(b"\n", 0, at)) >= 0:
                lines -= 1
                if lines == 0:
                    return start + at + 1
            position = start
    return 0


def termination_message(message_file: Path, policy: str, log: Path, exit_code: int) -> str:
    """What a container left as its last words: its message file, or else, if it may and failed, the log's end."""
    if message := tail(message_file, TERMINATION_MESSAGE_BYTES):
        return message
    if policy != "FallbackToLogsOnError" or exit_code == 0:
        return ""
    return "".join(tail(log, FALLBACK_BYTES).splitlines(keepends=True)[-FALLBACK_LINES:])
