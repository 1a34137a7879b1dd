"""Push-based dispatch and combine, the fused operators of CloudMatrix-Infer, over RemoteMemory.

    fused_dispatch   1 write every message (row, scale, expert, number of its pair) into the push buffer of its
                       target   2 barrier: all messages have landed   3 flag: one field to every rank, with the
                       number of messages   4 wait for every rank's field   5 copy out of the own push buffer
    fused_combine    1 write every result into the combine buffer of the rank it came from   2 barrier   3 flag: add 1
                       to the flag of its token, atomically, since other ranks add to it too   4 wait until each
                       own token has all its results   5 sum

Against the pull-based pair nothing has to be asked for, at the price of a buffer for every peer's whole batch.
Dispatch and combine never share a buffer, and each has two, for even and odd events: two micro-batches may be under
way, so that the second is dispatched while the experts work on the first. Every dispatch has its combine, in order.

Why nothing is overwritten or counted twice. A rank that starts dispatch e+2 has finished its combine of e. So
messages: whoever owed it a result of e has copied its messages of e out. Fields: it has finished dispatch e+1, for
which every peer had finished dispatch e. Results and flags: they are pushed to a rank only after that rank has
started dispatch e+2, hence summed its results of e and set its flags back to zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xccl.errors import CorruptField
from xccl.field import Lost, await_field, await_word, publish
from xccl.layout import GroupMap, Kind, Layout, message_bytes
from xccl.memory import RemoteMemory
from xccl.quantise import dequantise, quantise
from xccl.routing import Floats, Route, weighted_sum
from xccl.steps import Steps, together

_SLOT: Final = np.dtype([("scale", np.float32), ("expert", np.int32), ("pair", np.int32), ("int8", np.int32)])


@dataclass(frozen=True)
class Pushed:
    """What `fused_dispatch` brought here: private copies, by source rank, within a rank in its (token, k) order.

    tokens: f32[N, H]; experts: int32[N]; received: rows from each rank; pairs: int32[N], where each row's result
    belongs at its source; event, sent: what `fused_combine` needs.
    """

    tokens: Floats
    experts: NDArray[np.int32]
    received: tuple[int, ...]
    pairs: NDArray[np.int32]
    event: int
    sent: Route


class Push:
    """The fused operators of rank `rank`; `memories[r]` reaches rank r's group segment, the own one included."""

    def __init__(self, rank: int, memories: Sequence[RemoteMemory], layout: Layout, lost: Lost) -> None:
        self._rank = rank
        self._memories = memories
        self._own = memories[rank]
        self._layout = layout
        self._map = GroupMap(layout)
        self._lost = lost
        self._event = 0
        self._combined = 0
        self._message = np.dtype(
            {
                "names": ["row", "slot"],
                "formats": [(np.uint8, layout.row_bytes), _SLOT],
                "offsets": [0, layout.row_bytes],
                "itemsize": message_bytes(layout.row_bytes),
            }
        )

    def dispatch(self, x: Floats, sent: Route, quantised: bool) -> Steps[Pushed]:
        """See Group.fused_dispatch."""
        if self._event - self._combined >= 2:
            raise ValueError(
                f"dispatches {self._combined + 1} and {self._event} were not combined yet; two may be under way"
            )
        self._event += 1
        event = self._event
        messages = self._pack(x, sent, quantised)
        at = self._map.pushed(self._rank, event)
        writes, flags = [], []
        for memory, offset, count in zip(self._memories, sent.offsets, sent.counts, strict=True):
            if count:
                writes.append(memory.write(at, messages[offset : offset + count].view(np.uint8)))
            flags.append(publish(memory, self._map.field(Kind.PUSH, self._rank, event), event, count, 0))
        yield from together(writes)
        yield from together(flags)  # behind the barrier: every write has ended, and publishing releases it

        arrived = []
        for source in range(len(self._memories)):
            field = self._map.field(Kind.PUSH, source, event)
            count, _ = yield from await_field(self._own, field, event, self._lost)
            if count > self._layout.rows:
                raise CorruptField(f"rank {source} has pushed {count} messages, the buffer holds {self._layout.rows}")
            messages = np.empty(count, self._message)
            if count:
                yield from self._own.read(self._map.pushed(source, event), messages.view(np.uint8))
            arrived.append(messages)
        return self._unpack(arrived, event, sent)

    def combine(self, y: Floats, pushed: Pushed, weights: Floats) -> Steps[Floats]:
        """See Group.fused_combine."""
        event = pushed.event
        if event != self._combined + 1:
            raise ValueError(f"this is the combine of dispatch {event}; that of {self._combined + 1} is next")
        self._combined = event
        top_k = weights.shape[1]
        ends = np.cumsum(pushed.received).tolist()
        pairs = [pushed.pairs[end - count : end] for end, count in zip(ends, pushed.received, strict=True)]
        writes, adds = [], []
        for memory, end, mine in zip(self._memories, ends, pairs, strict=True):
            if mine.size:
                rows = y[end - mine.size : end]
                writes.append(memory.write_rows(self._map.combined(event), mine.astype(np.intp), rows))
                adds.append(memory.add_each(self._flag_of(mine.astype(np.int64) // top_k, event), 1))
        yield from together(writes)
        yield from together(adds)  # behind the barrier: every write has ended, and adding releases it

        for token in range(weights.shape[0]):
            flag = self._map.flags(event) + token * 8
            landed = yield from await_word(self._own, flag, top_k, self._lost)
            if landed != top_k:
                raise CorruptField(f"token {token} has {landed} results of {top_k}")
            yield from self._own.store(flag, 0)
        rows = np.empty((weights.size, self._layout.hidden), np.float32)
        if rows.size:
            yield from self._own.read(self._map.combined(event), rows)
        return weighted_sum(rows, np.arange(weights.size), weights)

    def _flag_of(self, tokens: NDArray[np.int64], event: int) -> NDArray[np.int64]:
        return self._map.flags(event) + tokens * 8

    def _pack(self, x: Floats, sent: Route, quantised: bool) -> NDArray[np.void]:
        messages = np.zeros(sent.order.size, self._message)
        rows, scales = quantise(x) if quantised else (x, None)
        if messages.size:
            taken = rows[sent.tokens]
            messages["row"][:, : taken.shape[1] * taken.itemsize] = taken.view(np.uint8)
        slot = messages["slot"]
        slot["expert"], slot["pair"], slot["int8"] = sent.experts, sent.order, quantised
        if scales is not None:
            slot["scale"] = scales[sent.tokens]
        return messages

    def _unpack(self, arrived: Sequence[NDArray[np.void]], event: int, sent: Route) -> Pushed:
        received = tuple(len(messages) for messages in arrived)
        tokens = np.empty((sum(received), self._layout.hidden), np.float32)
        begin = 0
        for source, messages in enumerate(arrived):
            into = tokens[begin : (begin := begin + len(messages))]
            slot = messages["slot"]
            pairs = slot["pair"]
            if pairs.size and not 0 <= int(pairs.min()) <= int(pairs.max()) < self._layout.rows:
                raise CorruptField(
                    f"rank {source} has pushed pairs {pairs.min()}..{pairs.max()} of {self._layout.rows}"
                )
            if slot["int8"].any():
                rows = np.ascontiguousarray(messages["row"][:, : self._layout.hidden]).view(np.int8)
                dequantise(rows, slot["scale"], into)
            elif pairs.size:
                into.view(np.uint8)[:] = messages["row"]
        slots = np.concatenate([messages["slot"] for messages in arrived])
        return Pushed(
            tokens, np.ascontiguousarray(slots["expert"]), received, np.ascontiguousarray(slots["pair"]), event, sent
        )
