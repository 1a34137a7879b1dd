"""A2E and E2A between the attention dies and the expert dies of one epoch: what users hold.

Ranks 0…A-1 are attention dies, the others expert dies. Every die joins as what it is, with the same peers, the same
number of attention dies and the same choice of trampolines. Several groups of attention dies (DP domains) may share
the expert dies: each is a domain with memory of its own.

    attention    sent = yield from group.a2e(x, expert_ids, owner); y = yield from group.e2a(sent, weights)
    expert       arrived = yield from group.a2e(); yield from group.e2a(arrived, y)

All dies take part in every event, also with no tokens. Either way may be used while the other is under way. What
fails or is abandoned midway breaks the group: leave, and join the next epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, Self, TypeVar

import numpy as np

from xccl.a2e_attention import Attention, Sent
from xccl.a2e_die import Die, Traffic
from xccl.a2e_expert import Arrived, Expert
from xccl.a2e_layout import A2EMap, Way
from xccl.a2e_plan import Plan
from xccl.endpoint import Endpoint, Reached, a2e_name
from xccl.errors import Broken
from xccl.routing import Floats, Integers, check_array
from xccl.shm import Segment
from xccl.steps import Steps
from xccl.uri import Peer

T = TypeVar("T")
D = TypeVar("D", bound=Die)


class _DieGroup(Generic[D]):
    """What both kinds of dies have in common: how they join and leave, and that each way has its turn."""

    _kind: type[D]
    _called: str

    def __init__(
        self, endpoint: Endpoint, plan: Plan, rank: int, own: Segment, neighbours: Mapping[int, Reached]
    ) -> None:
        memories = {rank: own.memory} | {each: segment.memory for each, segment in neighbours.items()}
        watch = endpoint.watch(list(neighbours.items()))
        self._plan = plan
        self._layout = endpoint.layout
        self._own = own
        self._die = self._kind(plan, rank, memories, endpoint.layout, watch.lost)
        self._busy: set[Way] = set()
        self._broken = False

    @classmethod
    def join(
        cls,
        endpoint: Endpoint,
        *,
        epoch: int,
        rank: int,
        peers: Sequence[Peer],
        attention: int,
        trampolines: bool = True,
        domain: int = 0,
    ) -> Steps[Self]:
        """Join as `rank` of `peers`, the first `attention` of which are attention dies. Done when neighbours are there.

        Raises ValueError for peers that do not fit, Broken when the epoch was joined before, LayoutMismatch when the
        endpoint's layout has no room, and what `Endpoint.connect` raises.
        """
        plan = (Plan.with_trampolines if trampolines else Plan.direct)(attention, len(peers) - attention)
        ranks = cls._ranks(plan)
        if rank not in ranks:
            raise ValueError(f"rank {rank} is no {cls._called}, those are ranks {ranks.start} to {ranks.stop - 1}")
        ordered = sorted(peers, key=lambda peer: peer.rank)
        if [peer.rank for peer in ordered] != list(range(len(peers))):
            raise ValueError(f"ranks must be 0..n-1, each once: {[peer.rank for peer in ordered]}")
        if ordered[rank].incarnation != endpoint.incarnation:
            raise ValueError(f"rank {rank} is {ordered[rank].incarnation!r}, this is {endpoint.incarnation!r}")
        name, nbytes = a2e_name(epoch, domain), A2EMap(endpoint.layout, plan).total
        own = endpoint.own(name, nbytes)
        reached: dict[int, Reached] = {}
        for neighbour in plan.neighbours(rank):
            reached[neighbour] = yield from endpoint.connect(ordered[neighbour], name, nbytes)
        endpoint.claim(name)
        return cls(endpoint, plan, rank, own, reached)

    @property
    def traffic(self) -> Mapping[Way, Traffic]:
        """Metadata fields that this die has written and waited for, each way."""
        return self._die.traffic

    def leave(self) -> None:
        """Close the own segment: neighbours that wait for this die get PeerLost. Idempotent."""
        self._own.close()

    @staticmethod
    def _ranks(plan: Plan) -> range:
        """The ranks of this kind."""
        raise NotImplementedError

    def _exclusively(self, way: Way, steps: Steps[T]) -> Steps[T]:
        """Run `steps`, unless that way is under way; whatever stops them midway breaks both ways."""
        if self._broken or self._own.closed or way in self._busy:
            raise Broken(f"{way.name} is under way, has failed, or the group was left; join the next epoch")
        self._busy.add(way)
        try:
            return (yield from steps)
        except (Broken, ValueError):  # refused before anything was done
            raise
        except BaseException:
            self._broken = True
            raise
        finally:
            self._busy.discard(way)


class AttentionGroup(_DieGroup[Attention]):
    """An attention die in one epoch. Use `join`."""

    _kind = Attention
    _called = "attention die"

    @staticmethod
    def _ranks(plan: Plan) -> range:
        return range(plan.attention)

    def a2e(self, x: Floats, expert_ids: Integers, owner: Integers) -> Steps[Sent]:
        """Send every token to the dies of its experts, once an expert; done when they were told, not when they took it.

        x: f32[T, H]; expert_ids: int[T, K]; owner: int[experts], the expert die (0…E-1) of each expert. T may be 0.
        Raises ValueError for shapes, types or ids that do not fit, Broken while two micro-batches are under way;
        PeerLost. xDeepServe, "A2E".
        """
        layout = self._layout
        check_array("x", x, np.float32, (expert_ids.shape[0], layout.hidden))
        if expert_ids.ndim != 2 or expert_ids.shape[0] > layout.max_tokens or expert_ids.shape[1] > layout.top_k:
            raise ValueError(f"expert_ids is {expert_ids.shape}, at most ({layout.max_tokens}, {layout.top_k})")
        if owner.size and not 0 <= int(owner.min()) <= int(owner.max()) < self._plan.experts:
            raise ValueError(f"owner must name expert dies 0 to {self._plan.experts - 1}")
        return self._exclusively(Way.A2E, self._die.a2e(x, expert_ids, owner))

    def e2a(self, sent: Sent, weights: Floats) -> Steps[Floats]:
        """Wait for the experts' results and sum each token's by weight, in float32 and in the order of k.

        weights: f32[T, K]. Returns f32[T, H]. Raises ValueError for a shape that does not fit, Broken out of turn;
        PeerLost, EventMismatch, CorruptField. xDeepServe, "E2A".
        """
        if weights.ndim != 2 or weights.size != sent.route.order.size:
            raise ValueError(f"weights is {weights.shape}, but {sent.route.order.size} pairs were sent")
        check_array("weights", weights, np.float32, weights.shape)
        return self._exclusively(Way.E2A, self._die.e2a(sent, weights))


class ExpertGroup(_DieGroup[Expert]):
    """An expert die in one epoch. Use `join`; rank r is expert die r - attention."""

    _kind = Expert
    _called = "expert die"

    @staticmethod
    def _ranks(plan: Plan) -> range:
        return range(plan.attention, plan.dies)

    def a2e(self) -> Steps[Arrived]:
        """Receive the next micro-batch, and forward what is for owned dies: private copies, f32[N, H] and int32[N].

        Rows lie by attention die, within one in the order of (token, k). Raises PeerLost, EventMismatch, CorruptField.
        xDeepServe, "A2E".
        """
        return self._exclusively(Way.A2E, self._die.a2e())

    def e2a(self, arrived: Arrived, y: Floats) -> Steps[None]:
        """Give back the results of `arrived`: y f32[N, H], row by row.

        A trampoline waits for the results of the dies that it owns. Raises ValueError for a shape that does not fit,
        Broken out of turn; PeerLost, EventMismatch, CorruptField. xDeepServe, "E2A".
        """
        check_array("y", y, np.float32, arrived.tokens.shape)
        return self._exclusively(Way.E2A, self._die.e2a(arrived, y))
