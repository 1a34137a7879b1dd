"""How large each part of a die's memory is and where it lies: pure arithmetic on a `Layout`.

A die exposes one group segment an epoch and one ring segment a p2p peer. Each begins with a header page; then

group segment   metadata  4 kinds × max_peers × 2 parities fields of 64 B, 2 × max_tokens flags of 8 B
                managed   twice: expert ids and token numbers (int32[rows]), tokens (f32[max_tokens, hidden]) and
                          scales (f32[max_tokens]): what dispatch offers; f32[max_peers × rows, hidden]: what
                          combine offers
                push      twice: messages of max_peers × rows pairs, into which peers dispatch; f32[rows, hidden],
                          into which they combine
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
SKEW_BYTES: Final = 2048
"""Payloads begin in the middle of a page. Large arrays of an application begin just behind a page's start, and copying
between two places that lie almost alike in their pages takes twice as long (4 KiB aliasing of loads and stores)."""
FIELD_STRIDE: Final = 64
PUSH_SLOT_BYTES: Final = 512
SCRATCH_BYTES: Final = 4096
MAX_SEGMENT_BYTES: Final = 64 * 10**9  # the HBM of one die
_F32: Final = 4
_I32: Final = 4


class Kind(IntEnum):
    """Which collective a metadata field belongs to."""

    VOTE = 0
    DISPATCH = 1
    COMBINE = 2
    PUSH = 3


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
    ring_slots: int = 16
    slot_bytes: int = 32 * 1024

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
    """Byte offsets inside a group segment. Every block comes twice, for even and odd events."""

    def __init__(self, layout: Layout) -> None:
        self._peers = layout.max_peers
        self._flags = HEADER_BYTES + len(Kind) * layout.max_peers * 2 * FIELD_STRIDE
        self._flags_stride = layout.max_tokens * 8
        self._message_bytes = message_bytes(layout.row_bytes)
        self._source_bytes = layout.rows * self._message_bytes
        self._end = page_up(self._flags + 2 * self._flags_stride)
        self._experts = self._twice(layout.rows * _I32)
        self._numbers = self._twice(layout.rows * _I32)
        self._scales = self._twice(layout.max_tokens * _F32)
        self._tokens = self._twice(layout.max_tokens * layout.row_bytes)
        self._returned = self._twice(layout.max_peers * layout.rows * layout.row_bytes)
        self._pushed = self._twice(layout.max_peers * self._source_bytes)
        self._combined = self._twice(layout.rows * layout.row_bytes)
        self.total = self._end

    def _twice(self, nbytes: int) -> tuple[int, int]:
        stride = page_up(nbytes)
        first = self._end + SKEW_BYTES
        self._end = page_up(first + 2 * stride)
        return first, first + stride

    def field(self, kind: Kind, source: int, event: int) -> int:
        """The field that rank `source` publishes in this segment for `event`."""
        return HEADER_BYTES + ((kind * self._peers + source) * 2 + (event & 1)) * FIELD_STRIDE

    def experts(self, event: int) -> int:
        """int32[rows]: the expert of each dispatched pair, sorted by target rank."""
        return self._experts[event & 1]

    def numbers(self, event: int) -> int:
        """int32[rows]: the token of each dispatched pair."""
        return self._numbers[event & 1]

    def tokens(self, event: int) -> int:
        """f32[max_tokens, hidden], or int8[max_tokens, hidden]: the dispatched tokens."""
        return self._tokens[event & 1]

    def scales(self, event: int) -> int:
        """f32[max_tokens]: the scales of tokens in INT8."""
        return self._scales[event & 1]

    def returned(self, event: int) -> int:
        """f32[max_peers × rows, hidden]: the experts' results, in the order in which the rows arrived."""
        return self._returned[event & 1]

    def pushed(self, source: int, event: int) -> int:
        """Messages of `message_bytes`, at most `rows`: what rank `source` has dispatched here by pushing."""
        return self._pushed[event & 1] + source * self._source_bytes

    def combined(self, event: int) -> int:
        """f32[rows, hidden]: the results of this rank's pairs, pushed here by the experts' ranks."""
        return self._combined[event & 1]

    def flags(self, event: int) -> int:
        """u64[max_tokens]: how many results of each token have been pushed here."""
        return self._flags + (event & 1) * self._flags_stride


def message_bytes(row_bytes: int) -> int:
    """A pushed message: the row, then a slot of 512 bytes for its scale, expert and number (CloudMatrix-Infer)."""
    return row_bytes + PUSH_SLOT_BYTES


def push_bytes(ranks: int, batch: int, top_k: int, die_experts: int, message: int) -> int:
    """CloudMatrix-Infer's size of a push buffer: room for every rank to send its whole batch to one die.

    A token goes to a die once for each of its experts there, of which there are at most `die_experts`.
    """
    return ranks * batch * min(top_k, die_experts) * message


FIELD_BYTES: Final = 32
METADATA_BYTES: Final = 4 * 10**6  # what a die reserves for metadata


def metadata_fields(dies: int, aivs: int = 48) -> int:
    """Metadata fields of a die that can talk to `dies` dies: one for each AIV core, peer and direction.

    xDeepServe states about 74 K of them for 384 chips; that this is how they come about is our derivation.
    """
    return dies * aivs * 2


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
        self._payload = page_up(self._fields + layout.ring_slots * FIELD_STRIDE) + SKEW_BYTES
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
