"""The hardware as data: chips, servers, dies, planes, link timing and the faults that can befall them.

Pure: no I/O, no clock. Everything above imports its facts about the machine from here.
"""

from superpod.chip import CHIPS, Chip, ChipSpec
from superpod.fault import FaultKind
from superpod.plane import Plane, best_plane, transfer_seconds
from superpod.topology import Die, Server, SuperPod

__all__ = [
    "CHIPS",
    "Chip",
    "ChipSpec",
    "Die",
    "FaultKind",
    "Plane",
    "Server",
    "SuperPod",
    "best_plane",
    "transfer_seconds",
]
