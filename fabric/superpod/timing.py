"""The hardware's numbers, each with its unit and where it comes from.

Source tags: `P` the papers (xDeepServe, arXiv 2508.02520; CloudMatrix-Infer, arXiv 2506.12708) say so;
`D` derived from the papers' own numbers. Latencies are those of a 512-byte access by one die.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Source = Literal["P", "D"]


@dataclass(frozen=True)
class Figure:
    """One number of the hardware."""

    value: float
    unit: Literal["B", "B/s", "s"]
    source: Source


HBM_BYTES: Final = Figure(64e9, "B", "P")
HBM_BANDWIDTH: Final = Figure(1.6e12, "B/s", "P")
DIE_TO_DIE: Final = Figure(270e9, "B/s", "P")  # the two dies of one 910C chip, each way

UB_PEAK: Final = Figure(196e9, "B/s", "P")
UB_READ: Final = Figure(164e9, "B/s", "P")  # between servers
UB_READ_LATENCY: Final = Figure(1.9e-6, "s", "P")
UB_WRITE: Final = Figure(135e9, "B/s", "P")
UB_WRITE_LATENCY: Final = Figure(2.1e-6, "s", "P")
UB_READ_LOCAL: Final = Figure(167e9, "B/s", "P")  # inside one server
UB_READ_LOCAL_LATENCY: Final = Figure(1.2e-6, "s", "P")
UB_WRITE_LOCAL: Final = Figure(137e9, "B/s", "P")
UB_WRITE_LOCAL_LATENCY: Final = Figure(1.3e-6, "s", "P")

ROCE: Final = Figure(25e9, "B/s", "P")  # 200 Gb/s a die
VPC_SERVER: Final = Figure(50e9, "B/s", "P")  # 400 Gb/s, shared by the chips of a server
VPC_CHIP: Final = Figure(6.25e9, "B/s", "D")  # the share of one of eight chips
