"""Where everything lies in the segment of a die that takes part in A2E and E2A.

metadata   2 kinds × dies × 2 parities fields of 64 B
managed    2 × rows targets (int32[2]: expert die and expert) and tokens (f32[hidden]): what an attention die offers;
           2 × attention × rows of the same: what a trampoline forwards;
           2 × attention × rows results (f32[hidden]): what an expert die gives back

where rows = max_tokens × top_k. All dies use the same map, so that one set of offsets serves for all; the files are
sparse, and a die touches its own part only. Blocks and fields come twice, for even and odd events: two micro-batches
may be under way.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from xccl.a2e_plan import Plan
from xccl.errors import LayoutMismatch
from xccl.layout import FIELD_STRIDE, HEADER_BYTES, Layout, page_up

TARGET_BYTES: Final = 8


class Way(IntEnum):
    """Which way a metadata field announces rows: to the experts, or back to attention."""

    A2E = 0
    E2A = 1


class A2EMap:
    """Byte offsets inside the segment. Raises LayoutMismatch when the dies do not fit the layout."""

    def __init__(self, layout: Layout, plan: Plan) -> None:
        if plan.dies > layout.max_peers:
            raise LayoutMismatch(f"{plan.dies} dies, but the layout has room for {layout.max_peers}")
        self._dies = plan.dies
        self.offered_rows = layout.rows
        self.arriving_rows = plan.attention * layout.rows
        begin = page_up(HEADER_BYTES + len(Way) * plan.dies * 2 * FIELD_STRIDE)
        self._offered_targets, begin = _twice(begin, self.offered_rows * TARGET_BYTES)
        self._offered_tokens, begin = _twice(begin, self.offered_rows * layout.row_bytes)
        self._forwarded_targets, begin = _twice(begin, self.arriving_rows * TARGET_BYTES)
        self._forwarded_tokens, begin = _twice(begin, self.arriving_rows * layout.row_bytes)
        self._returned, self.total = _twice(begin, self.arriving_rows * layout.row_bytes)

    def field(self, way: Way, source: int, event: int) -> int:
        """The field that rank `source` publishes in this segment for `event`."""
        return HEADER_BYTES + ((way * self._dies + source) * 2 + (event & 1)) * FIELD_STRIDE

    def offered(self, event: int) -> tuple[int, int]:
        """An attention die's rows, sorted by trampoline: targets and tokens."""
        return self._offered_targets[event & 1], self._offered_tokens[event & 1]

    def forwarded(self, event: int) -> tuple[int, int]:
        """A trampoline's rows for the dies that it owns: targets and tokens."""
        return self._forwarded_targets[event & 1], self._forwarded_tokens[event & 1]

    def returned(self, event: int) -> int:
        """An expert die's results, in the order in which the rows came."""
        return self._returned[event & 1]


def _twice(begin: int, nbytes: int) -> tuple[tuple[int, int], int]:
    """Two blocks from `begin` on, and where they end."""
    stride = page_up(nbytes)
    return (begin, begin + stride), begin + 2 * stride
