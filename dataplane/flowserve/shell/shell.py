"""The TE-shell at work: one task a rank pulls its status and sends it the membership if it is behind.

The shell decides nothing: rosters and memberships come from the orchestrator, and are repeated to ranks until they
have them. It goes on doing so, and dispatching, while the orchestrator is away.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable

import aiohttp
import structlog
from pydantic import ValidationError

from flowserve.control import Unavailable
from flowserve.epoch import Refused, supersedes
from flowserve.shell.experts import Experts
from flowserve.shell.heartbeats import Heartbeats, behind
from flowserve.shell.picker import Picker
from flowserve.wire import (
    DispatchReply,
    EngineStatus,
    Member,
    Membership,
    Roster,
    RosterEntry,
    ShellConfig,
    ShellStatus,
)
from flowserve.wire_experts import ExpertOrder, ExpertWatch

SILENT_BEATS = 3  # a rank that missed so many heartbeats gets no new requests
UNSETTLED_SECONDS = 0.1  # between heartbeats while some rank does not serve yet

log = structlog.get_logger()


class RankRefuses(Exception):
    """An engine answers, but not as it should."""


class Shell:
    """One instance's TE-shell; ``session`` carries the control token."""

    def __init__(
        self, config: ShellConfig, session: aiohttp.ClientSession, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._config = config
        self._session = session
        self._clock = clock
        self._incarnation = secrets.token_hex(8)
        self._membership: Membership | None = None
        self._heartbeats = Heartbeats(clock, SILENT_BEATS * config.heartbeat_seconds)
        self._picker = Picker(clock)
        self._listeners: dict[RosterEntry, asyncio.Task[None]] = {}
        self._news = asyncio.Event()
        self._experts = Experts(self._incarnation, self._serving, self._get, clock)

    @property
    def ready(self) -> bool:
        """Whether every member serves in the epoch that this shell spreads."""
        membership = self._membership
        return membership is not None and len(self._heartbeats.serving(membership)) == len(membership.members)

    def status(self) -> ShellStatus:
        return ShellStatus(
            instance=self._config.instance,
            incarnation=self._incarnation,
            epoch=self._membership.epoch if self._membership else 0,
            ranks=self._heartbeats.reports(),
            ready=self.ready,
            refused_order=self._experts.refusal,
        )

    def follow(self, roster: Roster) -> None:
        """Listens to these ranks from now on. Raises Refused for another instance's roster."""
        self._check_instance(roster.instance)
        self._heartbeats.follow(roster.entries)
        entries = set(self._heartbeats.entries)
        for entry in self._listeners.keys() - entries:
            self._listeners.pop(entry).cancel()
        for entry in entries - self._listeners.keys():
            self._listeners[entry] = asyncio.create_task(self._listen(entry))

    def spread(self, membership: Membership) -> None:
        """Sends this membership to all its members, until they have it. Raises Refused."""
        self._check_instance(membership.instance)
        if supersedes(membership, self._membership):
            log.info("membership", epoch=membership.epoch, ranks=len(membership.members))
            self._membership = membership
            self._picker.forget({member.incarnation for member in membership.members})
            self._tell()

    def dispatch(self) -> DispatchReply:
        """The rank that shall take the next request. Raises Unavailable."""
        if self._membership is None:
            raise Unavailable(f"instance {self._config.instance} has no membership yet")
        member = self._picker.pick(self._heartbeats.serving(self._membership))
        if member is None:
            raise Unavailable(f"no rank of instance {self._config.instance} serves in epoch {self._membership.epoch}")
        return DispatchReply(
            host=member.host, api_port=member.api_port, rank=member.rank, incarnation=member.incarnation
        )

    @property
    def experts(self) -> Experts:
        """What the shell knows of the load of routed experts."""
        return self._experts

    def watch_experts(self, watch: ExpertWatch) -> None:
        """Counts the load of experts from now on. Raises Refused for another instance."""
        self._check_instance(watch.instance)
        self._experts.watch(watch)

    def move_experts(self, order: ExpertOrder) -> None:
        """Sends a change of placement to all members, until they have it. Raises Refused."""
        self._check_instance(order.instance)
        self._experts.order(order, self._membership.epoch if self._membership else 0)
        self._tell()

    def call_off(self, version: int) -> None:
        """Takes a change of placement back, if it is still on its way."""
        self._experts.call_off(version)
        self._tell()

    async def close(self) -> None:
        """Stops listening."""
        tasks = list(self._listeners.values())
        for task in tasks:
            task.cancel()
        if (counting := self._experts.close()) is not None:
            tasks.append(counting)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _tell(self) -> None:
        """Makes all listeners ask, and tell, at once."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _serving(self) -> list[Member]:
        membership = self._membership
        return [each.member for each in self._heartbeats.serving(membership)] if membership else []

    def _check_instance(self, instance: str) -> None:
        if instance != self._config.instance:
            raise Refused(f"this is the shell of instance {self._config.instance}, not of {instance}")

    async def _listen(self, entry: RosterEntry) -> None:
        complaint = ""
        while True:
            began, news = self._clock(), self._news
            try:
                status = await self._call("GET", entry, "/v1/status")
                if self._membership is not None and behind(status, self._membership):
                    status = await self._call("PUT", entry, "/v1/membership", self._membership.model_dump_json())
                if (due := self._experts.due(status)) is not None:
                    await self._tell_experts(entry, *due)
                complaint = ""
            except (aiohttp.ClientError, OSError):
                pass  # silence speaks for itself
            except (RankRefuses, ValidationError) as error:
                if str(error) != complaint:
                    complaint = str(error)
                    log.warning("a rank refuses", rank=entry.rank, error=complaint)
            beat = self._config.heartbeat_seconds
            pause = (beat if self.ready else min(beat, UNSETTLED_SECONDS)) - (self._clock() - began)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(pause, 0.01)):
                    await news.wait()

    async def _tell_experts(self, entry: RosterEntry, method: str, path: str, body: str | None) -> None:
        try:
            await self._call(method, entry, path, body)
        except RankRefuses as error:
            self._experts.refusal = f"rank {entry.rank}: {error}"[:1024]
            raise

    async def _get(self, member: Member, path: str) -> bytes:
        url = f"http://{member.host}:{member.control_port}{path}"
        async with self._session.get(url) as response:
            answer = await response.read()
            if response.status != 200:
                raise Unavailable(f"GET {path}: HTTP {response.status}: {answer.decode(errors='replace')}")
        return answer

    async def _call(self, method: str, entry: RosterEntry, path: str, body: str | None = None) -> EngineStatus:
        url = f"http://{entry.host}:{entry.control_port}{path}"
        async with self._session.request(method, url, data=body) as response:
            answer = await response.read()
            if response.status != 200:
                raise RankRefuses(f"{method} {path}: HTTP {response.status}: {answer.decode(errors='replace')}")
        status = EngineStatus.model_validate_json(answer)
        self._heartbeats.heard(entry, status)
        return status
