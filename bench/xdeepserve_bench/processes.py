"""What processes cost: resident memory and processor time, read from /proc."""

import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from xdeepserve_cluster.processes import command_line, identify, resident_bytes

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """Resident memory in bytes and processor time in seconds, of one process or the sum of several."""

    resident: int = 0
    cpu_seconds: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.resident + other.resident, self.cpu_seconds + other.cpu_seconds)


def cost(pid: int) -> Cost:
    """Of one process; nothing when it is gone."""
    process = identify(pid)
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return Cost()
    return Cost(0 if process is None else resident_bytes(process), (int(stat[11]) + int(stat[12])) / _TICKS)


def children() -> dict[int, list[int]]:
    """Direct children of every process."""
    found: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            found[int(stat[1])].append(int(entry.name))
    return found


def family(pid: int, tree: dict[int, list[int]] | None = None) -> list[int]:
    """A process and all its descendants."""
    tree = tree or children()
    return [pid, *(each for child in tree.get(pid, []) for each in family(child, tree))]


def command(pid: int) -> str:
    """The command line; empty when the process is gone."""
    process = identify(pid)
    return "" if process is None else " ".join(command_line(process))
