"""One JSON shape for all benchmarks: measures with their peer, its value from the same run, the ratio and the bar.

A peer that is not installed gives ``against_value: null`` and ``met: null``, never a stored number. A measure without
a peer is judged by its own value.
"""

import os
import platform
import sys
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np


@dataclass(frozen=True)
class Measure:
    """One figure. ``bar`` is the limit of ``ratio`` where a peer is named, else of ``value``."""

    name: str
    value: float
    unit: str
    runs: int = 1
    against: str | None = None
    against_value: float | None = None
    bar: float | None = None
    better: Literal["lower", "higher"] = "lower"

    @property
    def ratio(self) -> float | None:
        """``value / against_value``."""
        return self.value / self.against_value if self.against_value else None

    @property
    def met(self) -> bool | None:
        """Whether the bar holds; None without a bar, or without the peer that it speaks of."""
        judged = self.ratio if self.against else self.value
        if self.bar is None or judged is None:
            return None
        return judged <= self.bar if self.better == "lower" else judged >= self.bar


@dataclass
class Report:
    """What a benchmark found."""

    name: str
    measures: list[Measure] = field(default_factory=list)
    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """For ``--plot``: seconds by bytes, a curve a name."""

    @property
    def failed(self) -> bool:
        """Whether any bar was missed."""
        return any(measure.met is False for measure in self.measures)

    def document(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "name": self.name,
            "version": version("xdeepserve"),
            "environment": environment(),
            "measures": [{**asdict(one), "ratio": one.ratio, "met": one.met} for one in self.measures],
            "curves": self.curves,
        }


def environment() -> dict[str, Any]:
    """The machine and the versions that figures depend on."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        "kernel": platform.release(),
        "python": sys.version.split()[0],
        "numpy": np.__version__,
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
