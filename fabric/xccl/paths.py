"""By which path a p2p message goes, and the rule that picks it.

MTE         chunks through the vector cores' unified buffer into slots of the receiver's ring, ping-pong: the
            receiver copies a chunk out while the next one is written. Lowest start-up; takes AIV cores.
DMA         one copy of a run of slots at a time, by an engine of its own: higher start-up, no unified buffer and
            hence no chunks, no AIV core.
ZERO_COPY   from application region to application region: the ring carries only where the data lies, and the
            receiver reads it from there. The data must lie in a `Region` of the sender.

The default rule, in this order:

    1  data in a region, at least ZERO_COPY_BYTES   → ZERO_COPY   one copy beats two once it outweighs a lookup
    2  at most UNIFIED_BUFFER_BYTES                 → MTE         start-up is what counts
    3  fewer than AIVS_PER_SEND AIV cores are free  → DMA         it needs none
    4  the ring is contended                        → DMA         chunks would wait for each other's slots
    5  else                                         → MTE         copying in and copying out overlap

Any function of a `Situation` may take its place (`Channel.connect(rule=…)`), and a single send may name its path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

AIVS: Final = 48
"""Vector cores of a 910C die."""
AIVS_PER_SEND: Final = 2
"""xDeepServe, p2p: below 1 MB two cores are enough for less than 20 µs."""
UNIFIED_BUFFER_BYTES: Final = 192 * 1024
"""Of one vector core. The papers do not state it; it is the public figure of the chip's predecessor."""
ZERO_COPY_BYTES: Final = 16 * 1024


class Path(StrEnum):
    """How the bytes of a message travel."""

    MTE = "mte"
    DMA = "dma"
    ZERO_COPY = "zero-copy"


@dataclass(frozen=True)
class Situation:
    """What a rule sees.

    registered: the data lies in a region of this endpoint. contended: slots of the receiver's ring are still taken
    by earlier messages.
    """

    nbytes: int
    registered: bool
    free_aivs: int
    contended: bool


Rule: TypeAlias = Callable[[Situation], Path]


def default_rule(now: Situation) -> Path:
    """The rule of this module's docstring."""
    if now.registered and now.nbytes >= ZERO_COPY_BYTES:
        return Path.ZERO_COPY
    if now.nbytes > UNIFIED_BUFFER_BYTES and (now.free_aivs < AIVS_PER_SEND or now.contended):
        return Path.DMA
    return Path.MTE


class Cores:
    """The AIV cores of a die, as sends take and give them back."""

    def __init__(self, aivs: int = AIVS) -> None:
        self.free = aivs

    @contextmanager
    def taken(self, path: Path) -> Iterator[None]:
        """The cores of a send by `path`, until it ends. Sends beyond the number of cores share them."""
        cores = min(self.free, AIVS_PER_SEND) if path is Path.MTE else 0
        self.free -= cores
        try:
            yield
        finally:
            self.free += cores
