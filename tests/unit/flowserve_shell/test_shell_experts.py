"""A shell asks ranks what they counted, and repeats orders to those that have not taken them up."""

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
from flowserve.shell.metrics import render_experts
from flowserve.shell.shell import Shell
from flowserve.wire import EngineStatus, ExpertState, Member, Membership, Roster, RosterEntry, ShellConfig
from flowserve.wire_experts import ExpertLoad, ExpertOrder, ExpertTable, ExpertWatch, LayerSlots

SLOTS = (LayerSlots(layer=1, slots=((0, 1), (2, 3))),)


class FakeEngine:
    """Serves, counts, and takes orders or refuses them."""

    def __init__(self) -> None:
        self.experts = ExpertState()
        self.orders: asyncio.Queue[int] = asyncio.Queue()
        self.called_off: asyncio.Queue[int] = asyncio.Queue()
        self.asked: asyncio.Queue[None] = asyncio.Queue()
        self.loads: asyncio.Queue[None] = asyncio.Queue()
        self.refuses = False
        self.count = 0
        self.app = web.Application()
        self.app.router.add_get("/v1/status", self.status)
        self.app.router.add_put("/v1/membership", self.status)
        self.app.router.add_get("/v1/experts/load", self.load)
        self.app.router.add_get("/v1/experts/placement", self.table)
        self.app.router.add_put("/v1/experts/placement", self.order)
        self.app.router.add_delete("/v1/experts/placement/{version}", self.call_off)

    async def status(self, _request: web.Request) -> web.Response:
        self.asked.put_nowait(None)
        said: dict[str, Any] = {"state": "Serving", "epoch": 1, "experts": self.experts}
        status = EngineStatus(name="e", incarnation="a", fabric_uri="u", **said)
        return web.Response(body=status.model_dump_json())

    async def load(self, _request: web.Request) -> web.Response:
        self.count += 1
        self.loads.put_nowait(None)
        counts = ((self.count, 0, 0, self.count),)
        load = ExpertLoad(incarnation="a", epoch=1, version=0, layers=(1,), chosen=counts, served=(2 * self.count,))
        return web.Response(body=load.model_dump_json())

    async def table(self, _request: web.Request) -> web.Response:
        table = ExpertTable(epoch=1, version=4, top_k=2, experts=4, expert_bytes=8, layers=SLOTS)
        return web.Response(body=table.model_dump_json())

    async def order(self, request: web.Request) -> web.Response:
        order = ExpertOrder.model_validate_json(await request.read())
        self.orders.put_nowait(order.version)
        if self.refuses:
            return web.Response(status=409, text="unsound")
        self.experts = ExpertState(target=order.version, phase="Prefetch")
        return await self.status(request)

    async def call_off(self, request: web.Request) -> web.Response:
        version = int(request.match_info["version"])
        self.called_off.put_nowait(version)
        self.experts = ExpertState(given_up=version)
        return await self.status(request)


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest_asyncio.fixture
async def shell(engine: FakeEngine) -> AsyncIterator[Shell]:
    async with TestServer(engine.app) as server, aiohttp.ClientSession() as session:
        assert server.port is not None
        shell = Shell(ShellConfig(instance="i", role="Decode", heartbeat_seconds=0.02), session)
        shell.follow(Roster(instance="i", entries=(RosterEntry(rank=0, host="127.0.0.1", control_port=server.port),)))
        member = Member(rank=0, host="127.0.0.1", control_port=server.port, incarnation="a", fabric_uri="u")
        shell.spread(Membership(instance="i", epoch=1, members=(member,)))
        async with asyncio.timeout(5):
            while not shell.ready:
                await engine.asked.get()
        yield shell
        await shell.close()


def order(version: int, **more: Any) -> ExpertOrder:
    return ExpertOrder(**{"instance": "i", "epoch": 1, "version": version, "layers": SLOTS, **more})


async def said(shell: Shell, engine: FakeEngine, what: str) -> None:
    """Looks at the shell after each heartbeat."""
    async with asyncio.timeout(5):
        while what not in shell.status().model_dump_json():
            await engine.asked.get()


async def test_an_order_is_repeated_until_the_rank_follows_it(engine: FakeEngine, shell: Shell) -> None:
    engine.refuses = True
    shell.move_experts(order(3))
    assert [await asyncio.wait_for(engine.orders.get(), 5) for _ in range(3)] == [3, 3, 3]
    await said(shell, engine, "HTTP 409: unsound")
    engine.refuses = False
    await said(shell, engine, '"target":3')
    while not engine.orders.empty():
        engine.orders.get_nowait()
    while not engine.asked.empty():
        engine.asked.get_nowait()
    for _ in range(3):
        await engine.asked.get()
    assert engine.orders.empty()


async def test_an_order_that_was_given_up_is_not_sent_again(engine: FakeEngine, shell: Shell) -> None:
    engine.experts = ExpertState(given_up=3)
    await said(shell, engine, '"given_up":3')
    shell.move_experts(order(3))
    shell.move_experts(order(4))
    assert await asyncio.wait_for(engine.orders.get(), 5) == 4
    assert engine.orders.empty()


async def test_an_order_can_be_called_off(engine: FakeEngine, shell: Shell) -> None:
    shell.move_experts(order(3))
    await said(shell, engine, '"target":3')
    shell.call_off(3)
    assert await asyncio.wait_for(engine.called_off.get(), 5) == 3
    await said(shell, engine, '"given_up":3')


async def test_orders_that_are_old_strange_or_contradict_are_refused(shell: Shell) -> None:
    shell.move_experts(order(3))
    shell.move_experts(order(3))
    with pytest.raises(Refused, match="epoch 2"):
        shell.move_experts(order(4, epoch=2))
    with pytest.raises(Refused, match="older than version 3"):
        shell.move_experts(order(2))
    with pytest.raises(Refused, match="other content"):
        shell.move_experts(order(3, deadline_seconds=1.0))
    with pytest.raises(Refused, match="not of j"):
        shell.move_experts(order(4, instance="j"))
    with pytest.raises(Refused, match="not of j"):
        shell.watch_experts(ExpertWatch(instance="j"))


async def test_intervals_are_counted_once_somebody_wants_to_know(engine: FakeEngine, shell: Shell) -> None:
    assert shell.experts.history(0).slices == ()
    shell.watch_experts(ExpertWatch(instance="i", interval_seconds=3600))
    shell.watch_experts(ExpertWatch(instance="i", interval_seconds=0.1, slices=2))
    async with asyncio.timeout(5):
        while len(shell.experts.history(0).slices) < 2:
            await engine.loads.get()
    history = shell.experts.history(0)
    assert history.layers == (1,)
    assert [each.chosen for each in history.slices] == [((1, 0, 0, 1),)] * 2
    assert shell.experts.history(history.slices[0].sequence).slices[0] == history.slices[1]
    assert 'xdeepserve:expert_imbalance{instance="i",layer="1"} 1' in render_experts(shell.status(), history)


async def test_the_table_is_that_of_a_rank_that_serves(engine: FakeEngine, shell: Shell) -> None:
    assert (await shell.experts.table()).version == 4
    shell.spread(
        Membership(instance="i", epoch=2, members=(Member(rank=0, host="h", incarnation="z", fabric_uri="u"),))
    )
    with pytest.raises(Unavailable, match="no rank serves"):
        await shell.experts.table()
