"""The collectives of one group as protocols over RemoteMemory: vote, dispatch and combine.

Each is the same exchange. A rank writes what it offers into its own managed region, publishes one metadata field
to every rank (itself included, even with nothing to say), waits for one field from every rank, and pulls: reads
are faster than writes on the hardware (xDeepServe, "dispatch", steps 1 to 7). All ranks are read at once, so that
over TCP their answers are waited for together. A token is offered once, however many experts it goes to; in INT8 if
asked (`quantise`), each rank as it likes.

Why no data is overwritten while it is read. A rank that has finished event e+1 has seen every peer's field of
e+1, and a peer publishes that only after it has finished pulling event e. So when the rank starts event e+2, which
uses the blocks and fields of event e again, nobody reads them any more. Events of one kind count up by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xccl.atomics import gathered_sum
from xccl.errors import CorruptField
from xccl.field import Lost, await_field, publish
from xccl.layout import GroupMap, Kind, Layout
from xccl.memory import MappedMemory, RemoteMemory, mapped
from xccl.operations import Read, batch
from xccl.quantise import dequantise, quantise
from xccl.routing import Floats, Route, weighted_sum
from xccl.steps import Steps, together

_INT8: Final = 1 << 63  # in a dispatch's offset: the tokens offered are quantised
_BLOCK_BYTES: Final = 1 << 20


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
    """The collectives of rank `rank`; `memories[r]` reaches rank r's group segment, the own one (`own`) included."""

    def __init__(
        self, rank: int, own: MappedMemory, memories: Sequence[RemoteMemory], layout: Layout, lost: Lost
    ) -> None:
        self._rank = rank
        self._own = own
        self._outbox: Floats | None = None
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

    def dispatch(self, x: Floats, sent: Route, quantised: bool) -> Steps[Dispatched]:
        """Send each token to the owners of its experts; see Group.dispatch."""
        event = self._next(Kind.DISPATCH)
        yield from self._offer(event, x, sent, quantised)
        form = _INT8 if quantised else 0
        words = [(offset | form, count) for offset, count in zip(sent.offsets, sent.counts, strict=True)]
        fields = yield from self._exchange(Kind.DISPATCH, event, words)
        offers = [(first & ~_INT8, count, bool(first & _INT8)) for first, count in fields]
        for source, (offset, count, _) in enumerate(offers):
            if offset + count > self._layout.rows:
                raise CorruptField(f"rank {source} offers rows {offset}+{count} of {self._layout.rows}")

        received = tuple(count for _, count in fields)
        tokens = np.empty((sum(received), self._layout.hidden), np.float32)
        experts = np.empty(tokens.shape[0], np.int32)
        begin = 0
        pulls = []
        for source, (offset, count, int8) in enumerate(offers):
            rows = slice(begin, begin := begin + count)
            if count:
                pulls.append(self._pull(source, event, offset, tokens[rows], experts[rows], int8))
        yield from together(pulls)
        return Dispatched(tokens, experts, received, sent)

    def combine(self, y: Floats, dispatched: Dispatched, weights: Floats) -> Steps[Floats]:
        """Bring results back and sum them; see Group.combine."""
        event = self._next(Kind.COMBINE)
        sent = dispatched.sent
        if y is not self._outbox:
            yield from self._memories[self._rank].write(self._map.returned(event), y)
        self._outbox = None
        begins = np.cumsum((0, *dispatched.received)).tolist()
        offers = list(zip(begins, dispatched.received, strict=False))
        fields = yield from self._exchange(Kind.COMBINE, event, offers)

        most = self._layout.rows * self._layout.max_peers
        for target, (offset, count) in enumerate(fields):
            if count != sent.counts[target] or offset + count > most:
                raise CorruptField(f"rank {target} returns rows {offset}+{count}, was sent {sent.counts[target]}")
        at = [self._map.returned(event) + offset * self._layout.row_bytes for offset, _ in fields]
        combined = np.empty((weights.shape[0], self._layout.hidden), np.float32)
        memories = mapped(self._memories)
        if memories is not None and weights.size:
            which, offsets = sent.where(at, self._layout.row_bytes)
            gathered_sum(memories, combined, which, offsets, weights)
            return combined
        # Block by block of tokens, so that rows are summed while they are in the cache.
        for tokens, order, pieces in sent.blocks(weights.shape[1], _BLOCK_BYTES // self._layout.row_bytes):
            rows = np.empty((order.size, self._layout.hidden), np.float32)
            yield from together(
                self._memories[target].read(at[target] + skip * self._layout.row_bytes, rows[piece])
                for target, skip, piece in pieces
            )
            combined[tokens] = weighted_sum(rows, order, weights[tokens])
        return combined

    def outbox(self, rows: int) -> Floats:
        """f32[rows, H] in the own managed region, from which the next combine's results are pulled."""
        offset = self._map.returned(self._events[Kind.COMBINE] + 1)
        self._outbox = self._own.view(offset, (rows, self._layout.hidden), np.float32)
        return self._outbox

    def _offer(self, event: int, x: Floats, sent: Route, quantised: bool) -> Steps[None]:
        """Write what peers will pull: every token once, and which pairs go to whom."""
        own = self._memories[self._rank]
        if quantised:
            rows, scales = quantise(x)
            yield from own.write(self._map.tokens(event), rows)
            yield from own.write(self._map.scales(event), scales)
        else:
            yield from own.write(self._map.tokens(event), x)
        yield from own.write(self._map.numbers(event), sent.tokens.astype(np.int32))
        yield from own.write(self._map.experts(event), sent.experts)

    def _pull(
        self, source: int, event: int, offset: int, tokens: Floats, experts: NDArray[np.int32], int8: bool
    ) -> Steps[None]:
        """Gather the pairs that `source` offers from number `offset` on."""
        memory = self._memories[source]
        numbers = np.empty_like(experts)
        reads = [
            Read(self._map.experts(event) + offset * experts.itemsize, experts),
            Read(self._map.numbers(event) + offset * numbers.itemsize, numbers),
        ]
        yield from batch(memory, reads)
        rows = numbers.astype(np.intp)
        if not 0 <= int(rows.min()) <= int(rows.max()) < self._layout.max_tokens:
            raise CorruptField(f"rank {source} offers tokens {rows.min()}..{rows.max()} of {self._layout.max_tokens}")
        if not int8:
            yield from memory.read_rows(self._map.tokens(event), rows, tokens)
            return
        quantised = np.empty(tokens.shape, np.int8)
        scales = np.empty(rows.size, np.float32)
        yield from together(
            [
                memory.read_rows(self._map.tokens(event), rows, quantised),
                memory.read_rows(self._map.scales(event), rows, scales),
            ]
        )
        dequantise(quantised, scales, tokens)

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
