"""What a change of placement costs: bytes on the wire and how long they take.

NPUs pull their new experts at the same time, each over its own link, so the busiest NPU decides.
"""

from dataclasses import dataclass

import numpy as np

from eplb.placement import EMPTY, Placement
from superpod.timing import UB_READ, UB_READ_LATENCY

EXPERT_BYTES = 3 * 7168 * 2048 + 4 * (2 * 2048 + 7168)  # DeepSeek-V3: three INT8 matrices, a float32 scale a row


@dataclass(frozen=True)
class Link:
    """``bandwidth`` in B/s and ``latency`` in s of one NPU's pull; by default UB between servers."""

    bandwidth: float = UB_READ.value
    latency: float = UB_READ_LATENCY.value


@dataclass(frozen=True)
class Cost:
    """``moves``: expert copies that travel, all layers. ``bytes`` in all. ``seconds`` on the wire."""

    moves: int
    bytes: int
    seconds: float


def cost(before: Placement, after: Placement, expert_bytes: int = EXPERT_BYTES, link: Link | None = None) -> Cost:
    """The cost of getting from one placement to the other."""
    link = link or Link()
    new = (after.slots != EMPTY) & ~(after.slots[..., None] == before.slots[..., None, :]).any(3)
    busiest = int(new.sum((0, 2)).max())
    moves = int(np.count_nonzero(new))
    return Cost(moves, moves * expert_bytes, busiest * (link.latency + expert_bytes / link.bandwidth))
