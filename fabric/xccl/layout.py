"""How large each part of a die's memory is and where it lies: pure arithmetic on a `Layout`.

A die exposes one group segment an epoch and one ring segment a p2p peer. Each begins with a header page; then

group segment   metadata  3 kinds × max_peers × 2 parities fields of 64 B
                managed   2 × rows expert ids (int32), 2 × rows tokens (f32[hidden]): what dispatch offers;
                          2 × max_peers × rows rows (f32[hidden]): what combine offers
ring segment    metadata  one acknowledgement word, ring_slots fields
                managed   ring_slots × slot_bytes; one page for the dummy payload of probes

where rows = max_tokens × top_k. Blocks come twice, for even and odd events, so that a fast rank's next event
never overwrites what a slow rank still reads. A field is 32 bytes in a cache line of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Final

HEADER_BYTES: Final = 4096
FIELD_STRIDE: Final = 64
SCRATCH_BYTES: Final = 4096
MAX_SEGMENT_BYTES: Final = 64 * 10**9  # the HBM of one die
_F32: Final = 4
_I32: Final = 4


class Kind(IntEnum):
    """Which collective a metadata field belongs to."""

    VOTE = 0
    DISPATCH = 1
    COMBINE = 2


_LIMITS: Final = {
    "max_peers": (1, 1024),
    "max_tokens": (1, 1 << 16),
    "hidden": (1, 1 << 16),
    "top_k": (1, 64),
    "ring_slots": (2, 1024),
    "slot_bytes": (64, 1 << 26),
}

_SHAPING: Final = {
    "group": ("max_peers", "max_tokens", "hidden", "top_k"),
    "a2e": ("max_tokens", "hidden", "top_k"),
    "ring": ("ring_slots", "slot_bytes"),
}


@dataclass(frozen=True)
class Layout:
    """The sizes of an endpoint's segments: those of a group are shared by its ranks, those of a ring by its two ends.

    max_peers: ranks in a group; max_tokens: the largest local batch of one dispatch; hidden: f32 values a token;
    top_k: experts a token; ring_slots × slot_bytes: the p2p ring of one peer. Raises ValueError out of bounds.
    """

    max_peers: int
    max_tokens: int
    hidden: int
    top_k: int
    ring_slots: int = 8
    slot_bytes: int = 64 * 1024

    def __post_init__(self) -> None:
        for name, (low, high) in _LIMITS.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"Layout.{name} is {value}, must lie between {low} and {high}")
        if self.slot_bytes % FIELD_STRIDE:
            raise ValueError(f"Layout.slot_bytes is {self.slot_bytes}, must be a multiple of {FIELD_STRIDE}")
        if self.group_bytes > MAX_SEGMENT_BYTES:
            raise ValueError(
                f"a group segment would take {self.group_bytes} bytes, more than the {MAX_SEGMENT_BYTES} of a "
                "die; lower max_peers, max_tokens, top_k or hidden"
            )

    @property
    def rows(self) -> int:
        """The most (token, expert) pairs that one rank can dispatch at once."""
        return self.max_tokens * self.top_k

    @property
    def row_bytes(self) -> int:
        return self.hidden * _F32

    def words_of(self, segment: str) -> tuple[int, ...]:
        """The sizes that shape the segment of that name, as written into its header for comparison; others are 0.

        A prefill engine and a decode engine share rings, never a group: their groups may differ in size.
        """
        shaping = _SHAPING.get(segment.partition("-")[0], ())
        return tuple(getattr(self, field.name) if field.name in shaping else 0 for field in fields(self))

    @property
    def group_bytes(self) -> int:
        return GroupMap(self).total

    @property
    def ring_bytes(self) -> int:
        return RingMap(self).total


class GroupMap:
    """Byte offsets inside a group segment."""

    def __init__(self, layout: Layout) -> None:
        self._peers = layout.max_peers
        self._experts = page_up(HEADER_BYTES + len(Kind) * layout.max_peers * 2 * FIELD_STRIDE)
        self._experts_stride = page_up(layout.rows * _I32)
        self._tokens = self._experts + 2 * self._experts_stride
        self._tokens_stride = page_up(layout.rows * layout.row_bytes)
        self._returned = self._tokens + 2 * self._tokens_stride
        self._returned_stride = layout.max_peers * self._tokens_stride
        self.total = self._returned + 2 * self._returned_stride

    def field(self, kind: Kind, source: int, event: int) -> int:
        """The field that rank `source` publishes in this segment for `event`."""
        return HEADER_BYTES + ((kind * self._peers + source) * 2 + (event & 1)) * FIELD_STRIDE

    def experts(self, event: int) -> int:
        """int32[rows]: the expert of each dispatched row."""
        return self._experts + (event & 1) * self._experts_stride

    def tokens(self, event: int) -> int:
        """f32[rows, hidden]: the dispatched rows, sorted by target rank."""
        return self._tokens + (event & 1) * self._tokens_stride

    def returned(self, event: int) -> int:
        """f32[max_peers × rows, hidden]: the experts' results, in the order in which the rows arrived."""
        return self._returned + (event & 1) * self._returned_stride


SHORTEST_CHUNK: Final = 2048


def chunk_bytes(nbytes: int, slot_bytes: int) -> int:
    """The size of the chunks of a p2p message of `nbytes`: a quarter of it, within SHORTEST_CHUNK and `slot_bytes`.

    The receiver copies a chunk out while the sender writes the next; shorter ones cost more than they gain.
    """
    quarter = -(-nbytes // (4 * FIELD_STRIDE)) * FIELD_STRIDE
    return min(slot_bytes, max(SHORTEST_CHUNK, quarter))


class RingMap:
    """Byte offsets inside a ring segment."""

    def __init__(self, layout: Layout) -> None:
        self.acknowledged = HEADER_BYTES
        self._slots = layout.ring_slots
        self._fields = HEADER_BYTES + FIELD_STRIDE
        self._payload = page_up(self._fields + layout.ring_slots * FIELD_STRIDE)
        self._slot_bytes = layout.slot_bytes
        self.scratch = page_up(self._payload + layout.ring_slots * layout.slot_bytes)
        self.total = self.scratch + SCRATCH_BYTES

    def field(self, tail: int) -> int:
        """The field of the slot that chunk number `tail` (counted from 1 for the ring's life) uses."""
        return self._fields + tail % self._slots * FIELD_STRIDE

    def slot(self, tail: int) -> int:
        return self._payload + tail % self._slots * self._slot_bytes


def page_up(nbytes: int) -> int:
    """`nbytes`, rounded up to whole pages."""
    return -(-nbytes // HEADER_BYTES) * HEADER_BYTES
