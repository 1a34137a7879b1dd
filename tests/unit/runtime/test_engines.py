"""The operator's side of the control routes: no answer is an answer, an unchanged status is the same object."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from flowserve.shell.digest import digest
from flowserve.wire import ShellStatus
from xdeepserve_operator.runtime.engines import REMEMBERED_SECONDS, EngineClient


class Shell:
    """A TE-shell that can be told what to say."""

    def __init__(self) -> None:
        self.status = ShellStatus(instance="t-0", incarnation="i")
        self.tagged, self.code, self.sent = True, 200, 0

    async def answer(self, request: web.Request) -> web.Response:
        etag = digest(self.status)
        if self.tagged and request.headers.get("If-None-Match") == etag:
            return web.Response(status=304)
        self.sent += 1
        headers = {"ETag": etag} if self.tagged else {}
        return web.Response(body=self.status.model_dump_json(), status=self.code, headers=headers)

    async def metrics(self, _request: web.Request) -> web.Response:
        return web.Response(text="a 1\n")


@pytest.fixture
async def world() -> AsyncIterator[tuple[Shell, EngineClient]]:
    shell, app = Shell(), web.Application()
    app.router.add_get("/v1/status", shell.answer)
    app.router.add_get("/metrics", shell.metrics)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with aiohttp.ClientSession() as session:
        yield shell, EngineClient(session, port=runner.addresses[0][1])
    await runner.cleanup()


async def test_an_unchanged_status_is_the_same_object_and_is_not_sent_again(world: tuple[Shell, EngineClient]):
    shell, client = world
    first = await client.shell_status("127.0.0.1", "t")
    assert first == shell.status
    assert await client.shell_status("127.0.0.1", "t") is first
    assert shell.sent == 1
    shell.status = shell.status.model_copy(update={"epoch": 1})
    assert await client.shell_status("127.0.0.1", "t") == shell.status


async def test_what_a_shell_said_is_forgotten_when_nobody_asks_it_any_more(world: tuple[Shell, EngineClient]):
    _, client = world
    now = 0.0
    client = EngineClient(client._session, client._port, monotonic=lambda: now)
    first = await client.shell_status("127.0.0.1", "t")
    now = REMEMBERED_SECONDS
    assert await client.shell_status("127.0.0.1", "t") is first
    now = 2 * REMEMBERED_SECONDS
    assert await client.shell_status("127.0.0.1", "t") is first, "it was asked meanwhile"
    forgotten = weakref.ref(first)
    del first
    now = 3 * REMEMBERED_SECONDS + 1
    await client.shell_status("localhost", "t")
    gc.collect()
    assert forgotten() is None


async def test_a_shell_without_etags_is_heard_all_the_same(world: tuple[Shell, EngineClient]):
    shell, client = world
    shell.tagged = False
    for epoch in (1, 2):
        shell.status = shell.status.model_copy(update={"epoch": epoch})
        assert await client.shell_status("127.0.0.1", "t") == shell.status


async def test_no_answer_is_none(world: tuple[Shell, EngineClient]):
    shell, client = world
    shell.code = 500
    assert await client.shell_status("127.0.0.1", "t") is None
    assert await client.shell_status("127.0.0.2", "t") is None
    assert await client.engine_metrics("127.0.0.1", "t") == "a 1\n"
    assert await client.engine_metrics("127.0.0.2", "t") is None
