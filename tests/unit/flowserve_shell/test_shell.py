"""A shell repeats a membership to an engine until it has it, and goes on when an engine is restarted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from flowserve.control import Unavailable
from flowserve.epoch import Refused
from flowserve.shell.shell import Shell
from flowserve.wire import EngineStatus, Member, Membership, Roster, RosterEntry, ShellConfig


class FakeEngine:
    """Answers as an engine does, and can be told to refuse or to forget."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {"incarnation": "first", "state": "Waiting", "epoch": 0}
        self.refusals = 0
        self.offers: asyncio.Queue[int] = asyncio.Queue()
        self.asked: asyncio.Queue[None] = asyncio.Queue()
        self.app = web.Application()
        self.app.router.add_get("/v1/status", self.status)
        self.app.router.add_put("/v1/membership", self.membership)

    async def status(self, _request: web.Request) -> web.Response:
        self.asked.put_nowait(None)
        status = EngineStatus(name="e", fabric_uri="u", **self.known)
        return web.Response(body=status.model_dump_json())

    async def membership(self, request: web.Request) -> web.Response:
        offered = Membership.model_validate_json(await request.read())
        self.offers.put_nowait(offered.epoch)
        if self.refusals:
            self.refusals -= 1
            return web.Response(status=409, text="{}")
        self.known |= {"epoch": offered.epoch, "state": "Serving"}
        return await self.status(request)


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest_asyncio.fixture
async def port(engine: FakeEngine) -> AsyncIterator[int]:
    server = TestServer(engine.app)
    await server.start_server()
    assert server.port is not None
    yield server.port
    await server.close()


@pytest_asyncio.fixture
async def shell(port: int) -> AsyncIterator[Shell]:
    async with aiohttp.ClientSession() as session:
        shell = Shell(ShellConfig(instance="i", role="Decode", heartbeat_seconds=0.02), session)
        shell.follow(Roster(instance="i", entries=(RosterEntry(rank=0, host="127.0.0.1", control_port=port),)))
        yield shell
        await shell.close()


def membership(epoch: int, incarnation: str = "first") -> Membership:
    member = Member(rank=0, host="127.0.0.1", incarnation=incarnation, fabric_uri="u")
    return Membership(instance="i", epoch=epoch, members=(member,))


async def offered(engine: FakeEngine) -> int:
    return await asyncio.wait_for(engine.offers.get(), 5)


async def becomes(shell: Shell, engine: FakeEngine, *, ready: bool) -> None:
    """Looks at the shell after each heartbeat."""
    async with asyncio.timeout(5):
        while shell.ready is not ready:
            await engine.asked.get()


async def test_a_membership_is_repeated_until_the_engine_has_it(engine: FakeEngine, shell: Shell) -> None:
    engine.refusals = 2
    shell.spread(membership(7))
    assert [await offered(engine) for _ in range(3)] == [7, 7, 7]
    await becomes(shell, engine, ready=True)
    assert shell.dispatch().incarnation == "first"
    assert engine.offers.empty()


async def test_a_restarted_engine_is_no_member_until_a_newer_membership_names_it(
    engine: FakeEngine, shell: Shell
) -> None:
    shell.spread(membership(1))
    await becomes(shell, engine, ready=True)
    engine.known = {"incarnation": "second", "state": "Waiting", "epoch": 0}
    await becomes(shell, engine, ready=False)
    with pytest.raises(Unavailable, match="no rank"):
        shell.dispatch()
    shell.spread(membership(2, "second"))
    await becomes(shell, engine, ready=True)
    assert shell.dispatch().incarnation == "second"


async def test_what_is_not_for_this_instance_or_too_old_is_refused(shell: Shell) -> None:
    shell.spread(membership(3))
    with pytest.raises(Refused, match="older"):
        shell.spread(membership(2))
    with pytest.raises(Refused, match="not of j"):
        shell.spread(membership(4).model_copy(update={"instance": "j"}))
    with pytest.raises(Refused, match="not of j"):
        shell.follow(Roster(instance="j", entries=()))


async def test_a_roster_without_ranks_ends_the_listening(engine: FakeEngine, shell: Shell) -> None:
    shell.spread(membership(1))
    await becomes(shell, engine, ready=True)
    shell.follow(Roster(instance="i", entries=()))
    assert (shell.status().ranks, shell.ready) == ((), False)
