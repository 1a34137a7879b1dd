"""A group: the ranks of one epoch, in lockstep.

Joining maps every peer's group segment of that epoch; leaving closes the own one. All ranks must call the same
collectives in the same order. A collective that fails or is abandoned midway leaves the ranks at different events,
so the group refuses further use: leave, and join the next epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, TypeVar

import numpy as np

from xccl.alltoall import AllToAll, Dispatched
from xccl.endpoint import Endpoint, Reached, group_name
from xccl.errors import Broken
from xccl.push import Push, Pushed
from xccl.routing import Floats, Integers, Route, check_array, route
from xccl.shm import Segment
from xccl.steps import Steps
from xccl.uri import Peer

T = TypeVar("T")


class Group:
    """The collectives of one epoch. Use `join`."""

    def __init__(self, endpoint: Endpoint, epoch: int, rank: int, own: Segment, segments: Sequence[Reached]) -> None:
        self.epoch = epoch
        self.rank = rank
        self.size = len(segments)
        self._layout = endpoint.layout
        self._own = own
        watch = endpoint.watch([(r, segment) for r, segment in enumerate(segments) if r != rank])
        memories = [segment.memory for segment in segments]
        self._protocol = AllToAll(rank, own.memory, memories, endpoint.layout, watch.lost)
        self._push = Push(rank, memories, endpoint.layout, watch.lost)
        self._usable = True

    @classmethod
    def join(cls, endpoint: Endpoint, *, epoch: int, rank: int, peers: Sequence[Peer]) -> Steps[Self]:
        """Join `epoch` as `rank`; `peers` are all ranks, this one included. Done when every peer is there.

        The endpoint leaves the group of an earlier epoch. After Timeout the same epoch may be tried again.
        Raises ValueError for peers that do not fit, StaleEpoch, and what `Endpoint.connect` raises.
        """
        ordered = sorted(peers, key=lambda peer: peer.rank)
        if [peer.rank for peer in ordered] != list(range(len(peers))) or not 0 <= rank < len(peers):
            raise ValueError(f"ranks must be 0..n-1, each once, and {rank} among them: {[p.rank for p in ordered]}")
        if len(peers) > endpoint.layout.max_peers:
            raise ValueError(f"{len(peers)} ranks, but the layout has room for {endpoint.layout.max_peers}")
        if ordered[rank].incarnation != endpoint.incarnation:
            raise ValueError(f"rank {rank} is {ordered[rank].incarnation!r}, this is {endpoint.incarnation!r}")
        own = endpoint.enter(epoch)
        segments: list[Reached] = []
        for peer in ordered:
            if peer.rank == rank:
                segments.append(own)
            else:
                name, nbytes = group_name(epoch), endpoint.layout.group_bytes
                segments.append((yield from endpoint.connect(peer, name, nbytes)))
        endpoint.joined(epoch)
        return cls(endpoint, epoch, rank, own, segments)

    def leave(self) -> None:
        """Close the own segment: peers that wait for this rank get PeerLost. Idempotent."""
        self._own.close()

    def vote(self, word: int) -> Steps[tuple[int, ...]]:
        """Exchange one word of 63 bits with every rank; returns all of them by rank. A full barrier.

        Raises ValueError for another number; PeerLost, EventMismatch, CorruptField. Metadata alone: the papers'
        lockstep of DP groups needs it, and gives it no name.
        """
        if not 0 <= word < 1 << 63:
            raise ValueError(f"a vote is a number of 63 bits, not {word}")
        return self._exclusively(self._protocol.vote(word))

    def pending(self) -> bool:
        """Whether some peer has already published the next vote: level-triggered, for a parked executor."""
        for source in range(self.size):
            offset, event = self._protocol.next_vote_field(source)
            if source != self.rank and self._own.memory.peek(offset) == event:
                return True
        return False

    def dispatch(
        self, x: Floats, expert_ids: Integers, owner: Integers, *, quantised: bool = False
    ) -> Steps[Dispatched]:
        """Send every token to the ranks that own its experts, once an expert. A full barrier.

        x: f32[T, H]; expert_ids: int[T, K]; owner: int[E], the rank of each expert, alike on all ranks. T may be 0.
        `quantised`: the tokens travel in INT8 and arrive as `quantise` leaves them. xDeepServe, "dispatch".
        Raises ValueError for shapes, types or ids that do not fit; PeerLost, EventMismatch, CorruptField.
        """
        sent = self._route(x, expert_ids, owner)
        return self._exclusively(self._protocol.dispatch(x, sent, quantised))

    def outbox(self, dispatched: Dispatched) -> Floats:
        """f32[N, H] in the managed region: results computed into it need no copy in the next `combine`."""
        return self._protocol.outbox(dispatched.tokens.shape[0])

    def combine(self, y: Floats, dispatched: Dispatched, weights: Floats) -> Steps[Floats]:
        """Bring every token's results back and sum them by weight, in float32, in the order of k. A full barrier.

        y: f32[N, H], row by row the result for `dispatched.tokens`; weights: f32[T, K]. Returns f32[T, H].
        Raises ValueError for shapes or types that do not fit; PeerLost, EventMismatch, CorruptField. xDeepServe,
        "combine".
        """
        _check_results(y, dispatched, weights)
        return self._exclusively(self._protocol.combine(y, dispatched, weights))

    def fused_dispatch(
        self, x: Floats, expert_ids: Integers, owner: Integers, *, quantised: bool = False
    ) -> Steps[Pushed]:
        """`dispatch` by pushing: the same arguments and the same result. A full barrier; needs its fused_combine.

        Two may be under way. Raises what `dispatch` raises; ValueError for a third. CloudMatrix-Infer,
        "FusedDispatch".
        """
        sent = self._route(x, expert_ids, owner)
        return self._exclusively(self._push.dispatch(x, sent, quantised))

    def fused_combine(self, y: Floats, pushed: Pushed, weights: Floats) -> Steps[Floats]:
        """`combine` by pushing, once for every fused_dispatch. Waits only for the results of own tokens.

        Raises what `combine` raises; ValueError when it is not this dispatch's turn; Unsupported where nothing
        can add atomically. CloudMatrix-Infer, "FusedCombine".
        """
        _check_results(y, pushed, weights)
        return self._exclusively(self._push.combine(y, pushed, weights))

    def _route(self, x: Floats, expert_ids: Integers, owner: Integers) -> Route:
        layout = self._layout
        check_array("x", x, np.float32, (expert_ids.shape[0], layout.hidden))
        if expert_ids.ndim != 2 or expert_ids.shape[0] > layout.max_tokens or expert_ids.shape[1] > layout.top_k:
            raise ValueError(f"expert_ids is {expert_ids.shape}, at most ({layout.max_tokens}, {layout.top_k})")
        return route(expert_ids, owner, self.size)

    def _exclusively(self, steps: Steps[T]) -> Steps[T]:
        if not self._usable or self._own.closed:
            raise Broken(f"epoch {self.epoch}: the group is in use, was left, or failed; join the next epoch")
        self._usable = False
        result = yield from steps
        self._usable = True
        return result


def _check_results(y: Floats, dispatched: Dispatched | Pushed, weights: Floats) -> None:
    check_array("y", y, np.float32, dispatched.tokens.shape)
    if weights.ndim != 2 or weights.size != dispatched.sent.order.size:
        raise ValueError(f"weights is {weights.shape}, but {dispatched.sent.order.size} pairs were dispatched")
    check_array("weights", weights, np.float32, weights.shape)
