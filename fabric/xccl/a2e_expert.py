"""The expert die's side of A2E and E2A, trampolines and owned dies; see `a2e_die` for the protocol."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from xccl.a2e_die import Die
from xccl.a2e_layout import TARGET_BYTES, Way
from xccl.errors import Broken, CorruptField
from xccl.routing import Floats
from xccl.steps import Steps, together


@dataclass(frozen=True)
class Arrived:
    """Rows for the experts of this die: tokens f32[N, H], experts int32[N]; the rest is for `Expert.e2a`.

    own: where these rows stand among all that arrived; forwarded: the same for each owned die; received: rows from
    each attention die, own and forwarded.
    """

    tokens: Floats
    experts: NDArray[np.int32]
    event: int
    own: NDArray[np.intp]
    forwarded: dict[int, NDArray[np.intp]] = field(default_factory=dict)
    received: tuple[int, ...] = ()


class Expert(Die):
    """An expert die, trampoline or owned: `a2e` receives, `e2a` gives back, each in the order of events."""

    _received = 0
    _returned = 0

    @property
    def _die(self) -> int:
        return self._rank - self._plan.attention

    def a2e(self) -> Steps[Arrived]:
        """Receive the rows of the next micro-batch. See `ExpertGroup.a2e`."""
        self._received += 1
        if self._die >= self._plan.trampolines:
            return (yield from self._from_trampoline(self._received))
        return (yield from self._from_attention(self._received))

    def e2a(self, arrived: Arrived, y: Floats) -> Steps[None]:
        """Give back the results of `arrived`. See `ExpertGroup.e2a`."""
        event = self._returned + 1
        if arrived.event != event:
            raise Broken(f"micro-batch {event} is given back next, not {arrived.event}")
        plan = self._plan
        if self._die >= plan.trampolines:
            yield from self._own.write(self._map.returned(event), y)
            yield from self._tell(Way.E2A, plan.rank(plan.trampoline_of(self._die)), event, 0, len(y))
        else:
            yield from self._own.write(self._map.returned(event), (yield from self._gathered(arrived, y)))
            begin = 0
            for rank, count in enumerate(arrived.received):
                yield from self._tell(Way.E2A, rank, event, begin, count)
                begin += count
        self._returned = event

    def _from_attention(self, event: int) -> Steps[Arrived]:
        plan, most = self._plan, self._map.offered_rows
        heard = yield from self._hear(Way.A2E, range(plan.attention), event, most)
        total = sum(count for _, count in heard)
        targets, tokens = np.empty((total, 2), np.int32), np.empty((total, self._hidden), np.float32)
        begin = 0
        pulls = []
        for rank, (offset, count) in enumerate(heard):
            rows = slice(begin, begin := begin + count)
            pulls.append(self._pull(rank, self._map.offered(event), offset, targets[rows], tokens[rows]))
        yield from together(pulls)

        dies = targets[:, 0]
        places = {die: np.flatnonzero(dies == die) for die in (self._die, *plan.owned(self._die))}
        if sum(map(len, places.values())) != total:
            raise CorruptField(f"expert die {self._die} was sent rows for others than {sorted(places)}")
        own = places.pop(self._die)
        at_targets, at_tokens = self._map.forwarded(event)
        begin = 0
        for die, rows_of in places.items():
            yield from self._own.write(at_targets + begin * TARGET_BYTES, targets[rows_of])
            yield from self._own.write(at_tokens + begin * self._row_bytes, tokens[rows_of])
            yield from self._tell(Way.A2E, plan.rank(die), event, begin, len(rows_of))
            begin += len(rows_of)
        received = tuple(count for _, count in heard)
        if not places:
            return Arrived(tokens, targets[:, 1].copy(), event, own, places, received)
        return Arrived(tokens[own], targets[own, 1], event, own, places, received)

    def _from_trampoline(self, event: int) -> Steps[Arrived]:
        trampoline = self._plan.rank(self._plan.trampoline_of(self._die))
        [(offset, count)] = yield from self._hear(Way.A2E, [trampoline], event, self._map.arriving_rows)
        targets, tokens = np.empty((count, 2), np.int32), np.empty((count, self._hidden), np.float32)
        yield from self._pull(trampoline, self._map.forwarded(event), offset, targets, tokens)
        if not np.all(targets[:, 0] == self._die):
            raise CorruptField(f"expert die {self._die} was forwarded rows of others")
        return Arrived(tokens, targets[:, 1].copy(), event, np.arange(count))

    def _gathered(self, arrived: Arrived, y: Floats) -> Steps[Floats]:
        """The results of this die and of those that it owns, in the order in which the rows arrived."""
        if not arrived.forwarded:
            return y
        ranks = [self._plan.rank(die) for die in arrived.forwarded]
        counts = [len(rows) for rows in arrived.forwarded.values()]
        results = np.empty((sum(arrived.received), self._hidden), np.float32)
        results[arrived.own] = y
        results[np.concatenate([*arrived.forwarded.values()])] = yield from self._results(ranks, arrived.event, counts)
        return results
