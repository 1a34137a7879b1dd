"""A2E and E2A as protocols over RemoteMemory: tokens to experts on other dies, and their results back.

attention die    writes its rows into its own block and publishes one field to every trampoline (a2e); waits for one
                 field from every trampoline, pulls and sums (e2a)
trampoline       waits for one field from every attention die, pulls, writes the rows of the dies that it owns into
                 its own block and publishes one field to each (a2e); waits for one field from each, pulls, puts all
                 results in the order of arrival, publishes one field to every attention die (e2a)
owned die        waits for one field from its trampoline, pulls (a2e); writes its results, publishes one field (e2a)

Without trampolines (`Plan.direct`) every expert die is a trampoline that owns nothing.

Why no block or field is overwritten while it is read. An attention die begins event e+2 only after it has pulled the
results of e (`Attention.a2e` refuses otherwise). An expert die that sees rows of e+2 therefore knows that every
attention die has finished e; and since results of e went out only after everybody behind them had pulled the rows
of e, nobody reads the blocks and fields of e any more, which e+2 uses again. So two micro-batches are under way at
most, and an expert die may receive one, compute another and give back a third.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from xccl.a2e_layout import TARGET_BYTES, A2EMap, Way
from xccl.a2e_plan import Plan
from xccl.errors import CorruptField
from xccl.field import Lost, await_field, publish
from xccl.layout import Layout
from xccl.memory import RemoteMemory
from xccl.operations import Read, batch
from xccl.routing import Floats
from xccl.steps import Steps, together

Targets: TypeAlias = NDArray[np.int32]
"""int32[N, 2]: the expert die and the expert of each row."""


@dataclass
class Traffic:
    """Metadata fields that a die has written and waited for."""

    written: int = 0
    polled: int = 0


class Die:
    """What both kinds of dies share; `memories` reaches the neighbours of `rank` in the plan, and its own segment."""

    def __init__(self, plan: Plan, rank: int, memories: Mapping[int, RemoteMemory], layout: Layout, lost: Lost) -> None:
        self.traffic = {way: Traffic() for way in Way}
        self._plan = plan
        self._rank = rank
        self._memories = memories
        self._own = memories[rank]
        self._hidden = layout.hidden
        self._row_bytes = layout.row_bytes
        self._map = A2EMap(layout, plan)
        self._lost = lost

    def _tell(self, way: Way, rank: int, event: int, offset: int, count: int) -> Steps[None]:
        self.traffic[way].written += 1
        yield from publish(self._memories[rank], self._map.field(way, self._rank, event), event, offset, count)

    def _hear(self, way: Way, ranks: Iterable[int], event: int, most: int) -> Steps[list[tuple[int, int]]]:
        """What each of `ranks` announces for `event`: offset and count, at most `most` rows."""
        heard = []
        for rank in ranks:
            self.traffic[way].polled += 1
            offset, count = yield from await_field(self._own, self._map.field(way, rank, event), event, self._lost)
            if offset + count > most:
                raise CorruptField(f"rank {rank} offers rows {offset}+{count} of {most}")
            heard.append((offset, count))
        return heard

    def _pull(self, rank: int, block: tuple[int, int], offset: int, targets: Targets, tokens: Floats) -> Steps[None]:
        """Fill `targets` and `tokens` with the rows from `offset` on of a block of rank's."""
        if len(tokens):
            at_targets, at_tokens = block
            reads = [
                Read(at_targets + offset * TARGET_BYTES, targets),
                Read(at_tokens + offset * self._row_bytes, tokens),
            ]
            yield from batch(self._memories[rank], reads)

    def _results(self, ranks: Sequence[int], event: int, expected: Sequence[int]) -> Steps[Floats]:
        """What `ranks` give back, `expected` rows of each, one rank after the other."""
        heard = yield from self._hear(Way.E2A, ranks, event, self._map.arriving_rows)
        results = np.empty((sum(expected), self._hidden), np.float32)
        reads = []
        begin = 0
        for rank, (offset, count), wanted in zip(ranks, heard, expected, strict=True):
            if count != wanted:
                raise CorruptField(f"rank {rank} returns {count} rows, was sent {wanted}")
            if count:
                at = self._map.returned(event) + offset * self._row_bytes
                reads.append(self._memories[rank].read(at, results[begin : begin + count]))
            begin += count
        yield from together(reads)
        return results
