"""The TE-shell's part in balancing experts: it asks the ranks each interval what they counted, and spreads orders.

It decides nothing. An order is repeated, heartbeat by heartbeat, to ranks that have not taken it up, as a membership
is; what ranks make of it they agree on among themselves, and say in their heartbeats.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import aiohttp
import structlog
from pydantic import ValidationError

from flowserve.control import Unavailable
from flowserve.epoch import Refused
from flowserve.shell.expert_window import ExpertWindow
from flowserve.wire import EngineStatus, Member
from flowserve.wire_experts import ExpertHistory, ExpertLoad, ExpertOrder, ExpertTable, ExpertWatch

Get = Callable[[Member, str], Awaitable[bytes]]

log = structlog.get_logger()


class Experts:
    """``serving``: members that serve now, all of them or none counts; ``get`` asks one. ``clock`` in seconds."""

    def __init__(
        self, incarnation: str, serving: Callable[[], list[Member]], get: Get, clock: Callable[[], float]
    ) -> None:
        self.refusal = ""  # why a rank did not take the last order
        self._incarnation = incarnation
        self._serving = serving
        self._get = get
        self._clock = clock
        self._watch: ExpertWatch | None = None
        self._window = ExpertWindow(1)
        self._order: ExpertOrder | None = None
        self._called_off = 0
        self._counting: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    def watch(self, watch: ExpertWatch) -> None:
        """Counts in these intervals from now on."""
        if watch == self._watch:
            return
        self._watch = watch
        self._window.resize(watch.slices)
        self._changed.set()
        if self._counting is None:
            self._counting = asyncio.create_task(self._count())

    def history(self, after: int) -> ExpertHistory:
        """The slices with a sequence above ``after``."""
        slices = tuple(each for each in self._window.slices if each.sequence > after)
        return ExpertHistory(incarnation=self._incarnation, layers=self._window.layers, slices=slices)

    async def table(self) -> ExpertTable:
        """The placement in force. Raises Unavailable."""
        for member in self._serving():
            with contextlib.suppress(aiohttp.ClientError, OSError, Unavailable, ValidationError):
                return ExpertTable.model_validate_json(await self._get(member, "/v1/experts/placement"))
        raise Unavailable("no rank serves that could say where its experts are")

    def order(self, order: ExpertOrder, epoch: int) -> None:
        """Spreads an order of this epoch. Raises Refused."""
        if order.epoch != epoch:
            raise Refused(f"the order is for epoch {order.epoch}, this instance is in epoch {epoch}")
        last = self._order
        if last is not None and last.epoch == epoch:
            if order.version < last.version:
                raise Refused(f"version {order.version} is older than version {last.version}, which was sent before")
            if order.version == last.version and order != last:
                raise Refused(
                    f"version {order.version} was sent with other content; send the change as a newer version"
                )
        if order != last:
            log.info("experts are to move", version=order.version, layers=len(order.layers))
            self._order, self._called_off, self.refusal = order, 0, ""

    def call_off(self, version: int) -> None:
        """Takes an order back; ranks that follow it give it up."""
        if self._order is not None and self._order.version == version:
            self._order = None
        self._called_off = version

    def due(self, status: EngineStatus) -> tuple[str, str, str | None] | None:
        """Method, path and body of what a rank should be told, now that it has said this."""
        said, order = status.experts, self._order
        if said.target and said.target == self._called_off:
            return "DELETE", f"/v1/experts/placement/{said.target}", None
        if order is None or (status.state, status.epoch) != ("Serving", order.epoch):
            return None
        if order.version == said.target or order.version <= max(said.version, said.given_up):
            return None
        return "PUT", "/v1/experts/placement", order.model_dump_json()

    def close(self) -> asyncio.Task[None] | None:
        """Stops counting; returns what is to be awaited."""
        if self._counting is not None:
            self._counting.cancel()
        return self._counting

    async def _count(self) -> None:
        while True:
            assert self._watch is not None
            self._changed.clear()
            began = self._clock()
            await self._ask()
            pause = self._watch.interval_seconds - (self._clock() - began)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(pause, 0.01)):
                    await self._changed.wait()

    async def _ask(self) -> None:
        members = self._serving()
        answers = await asyncio.gather(*(self._load(member) for member in members))
        loads = {member.rank: load for member, load in zip(members, answers, strict=True) if load is not None}
        if loads:
            self._window.take(loads, self._clock())

    async def _load(self, member: Member) -> ExpertLoad | None:
        try:
            return ExpertLoad.model_validate_json(await self._get(member, "/v1/experts/load"))
        except (aiohttp.ClientError, OSError, Unavailable, ValidationError) as error:
            log.warning("a rank does not say what it counted", rank=member.rank, error=str(error)[:200])
            return None
