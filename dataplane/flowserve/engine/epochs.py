"""An engine's life in groups: join the one that the newest membership describes, run in it, leave it for the next.

A newer membership ends the epoch at once, wherever its loop is: the iteration under way is undone, as if a peer had
been lost, and runs again in the next epoch. Ranks need not agree on the last iteration of an epoch, since a sequence
lives on one rank only and the experts keep nothing of it. A lost peer ends the epoch too; then the engine is Broken
and holds what runs until somebody sends a newer membership.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from flowserve.engine.expert_plane import ExpertPlane
from flowserve.engine.experts import DistributedExperts
from flowserve.engine.iteration import Iterations, Tally
from flowserve.engine.lockstep import Lockstep
from flowserve.engine.role import Role
from flowserve.engine.scheduler import Scheduler
from flowserve.engine.state import Lifecycle
from flowserve.wire import Member, Membership
from xccl import Doorbell, Endpoint, Group, Peer, Steps, Timeout, XcclError, arun, sweep

JOIN_SECONDS = 30.0  # the memberships of all ranks are sent at about the same time

log = structlog.get_logger()


class Epochs:
    """Runs for ever, one epoch after the other."""

    def __init__(
        self,
        life: Lifecycle,
        plane: ExpertPlane,
        scheduler: Scheduler,
        role: Role,
        endpoint: Endpoint,
        doorbell: Doorbell,
        wake: asyncio.Event,
        changed: Callable[[], None],
        tally: Tally,
        timeout: float,
    ) -> None:
        self._life = life
        self._plane = plane
        self._scheduler = scheduler
        self._role = role
        self._endpoint = endpoint
        self._doorbell = doorbell
        self._wake = wake
        self._changed = changed
        self._tally = tally
        self._timeout = timeout
        self._offered = asyncio.Event()
        self._current: asyncio.Task[None] | None = None

    def offer(self, membership: Membership) -> None:
        """Follows a membership if it is new. Raises Refused."""
        if self._life.offer(membership):
            log.info("membership", epoch=membership.epoch, ranks=len(membership.members))
            self._offered.set()
            if self._current is not None:
                self._current.cancel()

    async def run(self) -> None:
        """Each turn of the loop is one epoch. Ends only by cancellation, or by an error that is nobody's death."""
        while True:
            await self._offered.wait()
            self._offered.clear()
            membership = self._life.membership
            assert membership is not None
            self._current = asyncio.create_task(self._live(membership))
            try:
                await asyncio.wait({self._current})
            finally:
                self._current.cancel()
            if not self._current.cancelled() and (error := self._current.exception()) is not None:
                if not isinstance(error, XcclError):
                    raise error
                reason = "some rank did not take part in time" if isinstance(error, Timeout) else str(error)
                log.warning("the group broke", epoch=membership.epoch, error=reason, code=error.code)
                if not self._offered.is_set():
                    self._life.broke(f"epoch {membership.epoch}: {reason}"[:1024])

    async def _live(self, membership: Membership) -> None:
        me, members = self._life.member, membership.members
        peers = [Peer(each.rank, each.incarnation, each.fabric_uri) for each in members]
        sweep(self._endpoint.directory)  # a new epoch often means that somebody died
        await self._plane.prepare(me.rank, len(members))
        group = await arun(
            Group.join(self._endpoint, epoch=membership.epoch, rank=me.rank, peers=peers), timeout=JOIN_SECONDS
        )
        try:
            swapper = await self._plane.meet(group, peers, lambda vote: arun(vote, timeout=JOIN_SECONDS))
            self._life.joined()
            log.info("serving", epoch=membership.epoch, rank=me.rank, placement=swapper.map.version)
            spread = DistributedExperts(group, self._plane.weights, swapper, self._plane.counts, self._timeout)
            work = Iterations(self._scheduler, self._role, spread, self._tally, self._changed)
            others = [member for member in members if member.rank != me.rank]
            await Lockstep(group, work, swapper, self._wake, lambda: self._ring(others), self._vote).run()
        finally:
            self._plane.leave()
            group.leave()

    async def listen(self) -> None:
        """Wakes the loop whenever a peer rings."""
        while True:
            await self._doorbell.wait()
            self._wake.set()

    async def _vote(self, vote: Steps[tuple[int, ...]]) -> tuple[int, ...]:
        return await arun(vote, timeout=self._timeout)

    def _ring(self, members: list[Member]) -> None:
        for member in members:
            self._doorbell.ring((member.host, member.doorbell_port))
