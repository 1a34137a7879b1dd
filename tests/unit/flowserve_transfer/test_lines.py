"""Lines between two engines that stay, and links that break and come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import numpy as np
import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import BaseTestServer, TestServer

from flowserve.cache import BlockPool, SequenceKV
from flowserve.transfer.lines import Lines
from flowserve.transfer.pull import Pulled, Puller
from flowserve.transfer.push import Pusher
from flowserve.wire import PullRequest, TransferTicket
from xccl import Disturbance, Endpoint, Faults, Layout, LinkBroken, Timeout, XcclError

LAYOUT = Layout(max_peers=2, max_tokens=2, hidden=2, top_k=1)
ROWS = np.arange(60, dtype=np.float32).reshape(2, 5, 6)


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def prefill(tmp_path: Path) -> Iterator[Endpoint]:
    with Endpoint.create(tmp_path, "prefill", LAYOUT) as endpoint:
        yield endpoint


@pytest.fixture
def decode(tmp_path: Path, faults: Faults) -> Iterator[Endpoint]:
    with Endpoint.create(tmp_path, "decode", LAYOUT, faults=faults) as endpoint:
        yield endpoint


@pytest.fixture
async def server(prefill: Endpoint) -> AsyncIterator[BaseTestServer]:
    """A prefill engine as far as pulls are concerned: every ticket has the same KV."""
    pusher = Pusher(prefill, timeout=1)
    kv = SequenceKV(BlockPool(3, 2, *ROWS.shape[::2]))
    kv.load(ROWS)

    async def pull(request: web.Request) -> web.Response:
        wish = PullRequest.model_validate_json(await request.read())
        pusher.push(request.match_info["ticket"], kv, wish)
        return web.Response(status=202)

    app = web.Application()
    app.router.add_post("/v1/transfers/{ticket}/pull", pull)
    async with TestServer(app) as server:
        yield server


@pytest.fixture
async def puller(decode: Endpoint) -> AsyncIterator[Puller]:
    async with ClientSession() as http:
        yield Puller(decode, http, "127.0.0.1", timeout=5)


async def pulled(puller: Puller, server: BaseTestServer, prefill: Endpoint) -> Pulled:
    ticket = TransferTicket(
        id="t",
        host=str(server.host),
        control_port=server.port or 0,
        incarnation="prefill",
        fabric_uri=prefill.uri,
        tokens=5,
    )
    puller.pull(1, ticket, ROWS.shape)
    return await asyncio.wait_for(puller.completions.get(), 10)


async def test_kv_is_read_where_it_was_laid_out(puller: Puller, server: BaseTestServer, prefill: Endpoint) -> None:
    """One region, used again; it is zero-copy from the size on from which that pays."""
    for _ in range(3):
        assert np.array_equal((await pulled(puller, server, prefill)).rows, ROWS)
    assert [path.name for path in prefill.directory.glob("prefill.application-*")] == ["prefill.application-0"]


async def test_a_link_that_breaks_costs_the_pulls_of_its_time_only(
    puller: Puller, server: BaseTestServer, prefill: Endpoint, decode: Endpoint, faults: Faults
) -> None:
    """Both engines live on: the next pull goes by a new line, and the old one's memory is gone."""
    for _ in range(2):
        assert np.array_equal((await pulled(puller, server, prefill)).rows, ROWS)
    faults.link("prefill").cut()
    for _ in range(2):
        failed = await pulled(puller, server, prefill)
        assert "nothing comes through the link" in str(failed.rows)
    faults.link("prefill").mend()
    for _ in range(2):
        assert np.array_equal((await pulled(puller, server, prefill)).rows, ROWS)
    assert len(list(decode.directory.glob("decode.ring-*"))) == 1


async def test_a_link_that_swallows_something_costs_the_pull_of_its_time_only(
    server: BaseTestServer, prefill: Endpoint, decode: Endpoint, faults: Faults
) -> None:
    """The acknowledgement gets lost: the prefill engine waits for it in vain, and then for a line that works."""
    async with ClientSession() as http:
        puller = Puller(decode, http, "127.0.0.1", timeout=0.5)
        assert np.array_equal((await pulled(puller, server, prefill)).rows, ROWS)
        faults.link("prefill").disturbance = Disturbance(drop=1.0)
        await pulled(puller, server, prefill)
        faults.link("prefill").mend()
        while isinstance((await pulled(puller, server, prefill)).rows, str):
            pass
        assert np.array_equal((await pulled(puller, server, prefill)).rows, ROWS)


@pytest.mark.parametrize("lost", [LinkBroken(0, "for this test"), Timeout("for this test")])
async def test_a_line_stays_while_it_works_and_is_replaced_when_it_breaks(decode: Endpoint, lost: XcclError) -> None:
    lines = Lines(decode)
    async with lines.to("peer", "uri") as first:
        pass
    async with lines.to("peer", "uri") as again:
        assert again is first
    with pytest.raises(type(lost)):
        async with lines.to("peer", "uri"):
            raise lost
    async with lines.to("peer", "uri") as second:
        assert second.number > first.number
        assert second.next_event() == 1


async def test_the_pushing_side_follows_the_number_that_it_is_told(prefill: Endpoint) -> None:
    lines = Lines(prefill)
    async with lines.to("peer", "uri", 3) as line:
        assert line.number == 3
    async with lines.to("peer", "uri", 3) as again:
        assert again is line
    async with lines.to("peer", "uri", 5) as newer:
        assert newer.number == 5
    with pytest.raises(ValueError, match="line 3 to peer was replaced by line 5"):
        async with lines.to("peer", "uri", 3):
            pass


async def test_what_an_old_line_loses_does_not_touch_the_new_one(prefill: Endpoint) -> None:
    lines = Lines(prefill)
    taken = lines.to("peer", "uri", 1)
    await taken.__aenter__()
    async with lines.to("peer", "uri", 2) as newer:
        pass
    lost = LinkBroken(0, "for this test")
    assert not await taken.__aexit__(LinkBroken, lost, None)
    async with lines.to("peer", "uri", 2) as still:
        assert still is newer
