"""The collectives of one group as protocols over RemoteMemory: vote, dispatch and combine.

Each is the same exchange. A rank writes what it offers into its own managed region, publishes one metadata field
to every rank (itself included, even with nothing to say), waits for one field from every rank, and pulls: reads
are faster than writes on the hardware (xDeepServe, "dispatch", steps 1 to 7).

Why no data is overwritten while it is read. A rank that has finished event e+1 has seen every peer's field of
e+1, and a peer publishes that only after it has finished pulling event e. So when the rank starts event e+2, which
uses the blocks and fields of event e again, nobody reads them any more. Events of one kind count up by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xccl.errors import CorruptField
from xccl.field import Lost, await_field, publish
from xccl.layout import GroupMap, Kind, Layout
from xccl.memory import RemoteMemory
from xccl.routing import Floats, Route, weighted_sum
from xccl.steps import Steps


@dataclass(frozen=True)
class Dispatched:
    """What arrived here: private copies, by source rank, within a rank in its (token, k) order.

    tokens: f32[N, H]; experts: int32[N]; received: rows from each rank; sent: what `combine` needs to undo it.
    """

    tokens: Floats
    experts: NDArray[np.int32]
    received: tuple[int, ...]
    sent: Route


class AllToAll:
    """The collectives of rank `rank`; `memories[r]` reaches rank r's group segment, the own one included."""

    def __init__(self, rank: int, memories: Sequence[RemoteMemory], layout: Layout, lost: Lost) -> None:
        self._rank = rank
        self._memories = memories
        self._layout = layout
        self._map = GroupMap(layout)
        self._lost = lost
        self._events = dict.fromkeys(Kind, 0)
        # Everybody starts with the rank after itself, so that not all of them write to rank 0 at once.
        self._others_first = [(rank + step) % len(memories) for step in range(1, len(memories) + 1)]

    def next_vote_field(self, source: int) -> tuple[int, int]:
        """Offset of the field of `source`'s next vote in the own segment, and the event it will show."""
        event = self._events[Kind.VOTE] + 1
        return self._map.field(Kind.VOTE, source, event), event

    def vote(self, word: int) -> Steps[tuple[int, ...]]:
        """Exchange one word; see Group.vote."""
        event = self._next(Kind.VOTE)
        fields = yield from self._exchange(Kind.VOTE, event, [(word, 0)] * len(self._memories))
        return tuple(first for first, _ in fields)

    def dispatch(self, x: Floats, sent: Route) -> Steps[Dispatched]:
        """Send each token to the owners of its experts; see Group.dispatch."""
        event = self._next(Kind.DISPATCH)
        own = self._memories[self._rank]
        yield from own.write(self._map.tokens(event), x[sent.tokens])
        yield from own.write(self._map.experts(event), sent.experts)
        fields = yield from self._exchange(Kind.DISPATCH, event, list(zip(sent.offsets, sent.counts, strict=True)))
        for source, (offset, count) in enumerate(fields):
            if offset + count > self._layout.rows:
                raise CorruptField(f"rank {source} offers rows {offset}+{count} of {self._layout.rows}")

        received = tuple(count for _, count in fields)
        tokens = np.empty((sum(received), self._layout.hidden), np.float32)
        experts = np.empty(tokens.shape[0], np.int32)
        begin = 0
        for memory, (offset, count) in zip(self._memories, fields, strict=True):
            rows = slice(begin, begin := begin + count)
            if count == 0:
                continue
            yield from memory.read(self._map.tokens(event) + offset * self._layout.row_bytes, tokens[rows])
            yield from memory.read(self._map.experts(event) + offset * experts.itemsize, experts[rows])
        return Dispatched(tokens, experts, received, sent)

    def combine(self, y: Floats, dispatched: Dispatched, weights: Floats) -> Steps[Floats]:
        """Bring results back and sum them; see Group.combine."""
        event = self._next(Kind.COMBINE)
        sent = dispatched.sent
        yield from self._memories[self._rank].write(self._map.returned(event), y)
        begins = np.cumsum((0, *dispatched.received)).tolist()
        offers = list(zip(begins, dispatched.received, strict=False))
        fields = yield from self._exchange(Kind.COMBINE, event, offers)

        rows = np.empty((weights.size, self._layout.hidden), np.float32)
        most = self._layout.rows * self._layout.max_peers
        for target, (offset, count) in enumerate(fields):
            if count != sent.counts[target] or offset + count > most:
                raise CorruptField(f"rank {target} returns rows {offset}+{count}, was sent {sent.counts[target]}")
            if count == 0:
                continue
            mine = rows[sent.offsets[target] : sent.offsets[target] + count]
            yield from self._memories[target].read(self._map.returned(event) + offset * self._layout.row_bytes, mine)
        return weighted_sum(rows, sent.order, weights)

    def _next(self, kind: Kind) -> int:
        self._events[kind] += 1
        return self._events[kind]

    def _exchange(self, kind: Kind, event: int, words: Sequence[tuple[int, int]]) -> Steps[list[tuple[int, int]]]:
        """Publish `words[r]` to every rank r, then wait for what every rank published here: a full barrier."""
        mine = self._map.field(kind, self._rank, event)
        for target in self._others_first:
            yield from publish(self._memories[target], mine, event, *words[target])
        own = self._memories[self._rank]
        fields = []
        for source in range(len(self._memories)):
            offset = self._map.field(kind, source, event)
            fields.append((yield from await_field(own, offset, event, self._lost)))
        return fields
