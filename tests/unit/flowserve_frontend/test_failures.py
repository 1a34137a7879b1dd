"""Engines that die, refuse or misbehave, and clients that leave."""

import asyncio
import json

import aiohttp
import pytest

from flowserve.frontend.upstream import Timeouts
from flowserve.wire import Refusal, TokenEvent
from tests.unit.flowserve_frontend.fakes import DIE, MODEL, FakeInstance, World, answer, running_world

LOST = TokenEvent(index=0, error="a peer was lost", retryable=True)
RIGHT = answer(11, 12, 13)


async def complete(http: aiohttp.ClientSession, **fields) -> tuple[int, dict]:
    async with http.post("/v1/completions", json={"model": MODEL, "prompt": "hi", **fields}) as response:
        return response.status, await response.json()


async def sse(response: aiohttp.ClientResponse) -> list[str]:
    return [line.removeprefix("data: ") for line in (await response.text()).split("\n\n") if line]


@pytest.mark.parametrize("broken", [[DIE], [LOST], [], [b'{"index": 0, "tok']], ids=["dies", "says so", "ends", "cut"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_loss_before_the_first_token_is_repaired(http, world: World, broken, stream):
    world.decode.scripts.append(broken)
    async with http.post("/v1/completions", json={"model": MODEL, "prompt": "hi", "stream": stream}) as response:
        assert response.status == 200
        assert "<13>" in await response.text()
    assert [request.request_id[-2:] for request in world.decode.requests] == ["-1", "-2"]
    assert world.decode.requests[0].sampling == world.decode.requests[1].sampling
    assert await world.prefill.dropped.get() == "ticket-1"


async def test_a_whole_answer_is_repaired_even_after_tokens(http, world: World):
    world.decode.scripts.append([*RIGHT[:2], DIE])
    status, body = await complete(http, return_token_ids=True)
    assert status == 200
    assert body["choices"][0]["token_ids"] == [11, 12, 13]
    assert body["usage"]["completion_tokens"] == 3


async def test_another_instance_is_tried_first(http, world: World):
    async with FakeInstance("d1", "Decode").running() as other:
        world.route_to(world.prefill.target(), world.decode.target(), other.target())
        world.decode.script = [DIE]
        for _ in range(4):
            assert (await complete(http))[0] == 200
    attempts = [request.request_id[-2:] for request in other.requests]
    assert len(attempts) == 4
    assert attempts.count("-2") == len(world.decode.requests) > 0


async def test_no_room_now_is_waited_for(http, world: World):
    world.decode.refusals.extend([(503, Refusal(error="no room", retryable=True))] * 2)
    assert (await complete(http))[0] == 200
    assert len(world.decode.dispatches) == 3
    assert len(world.prefill.requests) == 1


async def test_retries_end(http, world: World, monkeypatch):
    monkeypatch.setattr("flowserve.frontend.job.RETRY_SECONDS", 0.1)
    world.decode.script = [DIE]
    status, body = await complete(http)
    assert status == 503
    assert body["error"]["code"] == "engine_lost"
    assert body["error"]["retryable"] is True
    assert 2 <= len(world.decode.requests) <= 4


@pytest.mark.parametrize(
    "events",
    [
        [TokenEvent(index=1, tokens=(12,), text="x")],
        [TokenEvent(index=0, tokens=(11,), text="x"), TokenEvent(index=0, tokens=(11,), text="x")],
        [TokenEvent(index=0, tokens=(11, 12), text="x"), TokenEvent(index=3, tokens=(13,), text="x")],
        [*RIGHT, TokenEvent(index=3, tokens=(14,))],
        [b"no json\n"],
        [b"x" * (2 << 20)],
    ],
    ids=["gap at start", "repeat", "gap", "after the end", "garbage", "endless line"],
)
async def test_a_corrupt_stream_is_never_passed_on(http, world: World, events):
    world.decode.script = events
    status, body = await complete(http)
    assert status == 500
    assert body["error"]["code"] == "internal_error"
    assert len(world.decode.requests) == 1


async def test_a_corrupt_stream_ends_with_an_error_event(http, world: World):
    world.decode.script = [RIGHT[0], RIGHT[2]]
    async with http.post("/v1/completions", json={"model": MODEL, "prompt": "hi", "stream": True}) as response:
        *chunks, last = await sse(response)
    assert [json.loads(chunk)["choices"][0]["text"] for chunk in chunks] == ["<11>"]
    assert json.loads(last)["error"]["code"] == "internal_error"
    assert "retryable" not in json.loads(last)["error"]


async def test_a_silent_engine_is_lost():
    async with running_world(timeouts=Timeouts(silence=0.05)) as world, aiohttp.ClientSession(world.url) as http:
        world.decode.script = [RIGHT[0], asyncio.Event()]
        async with http.post("/v1/completions", json={"model": MODEL, "prompt": "hi", "stream": True}) as response:
            *_, last = await sse(response)
        assert json.loads(last)["error"]["code"] == "engine_lost"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_cancels_the_decode(http, world: World, stream):
    world.decode.script = [RIGHT[0], asyncio.Event()]
    call = asyncio.create_task(complete(http, stream=stream))
    await world.decode.reached.wait()
    assert world.frontend.metrics.running == 1
    call.cancel()
    await asyncio.wait_for(world.decode.cancelled.wait(), 5)
    assert await asyncio.wait_for(world.prefill.dropped.get(), 5) == "ticket-1"
    assert world.frontend.metrics.running == 0


async def test_a_client_that_leaves_cancels_the_prefill(http, world: World):
    world.prefill.hold_prefill = asyncio.Event()
    call = asyncio.create_task(complete(http, stream=True))
    await world.prefill.reached.wait()
    call.cancel()
    await asyncio.wait_for(world.prefill.cancelled.wait(), 5)


async def test_no_text_breaks_the_lines_of_a_stream(http, world: World):
    text = "a\nb\r\u2028c\u0085d"
    world.decode.script = [TokenEvent(index=0, tokens=(11,), text=text, finish_reason="stop")]
    async with http.post("/v1/completions", json={"model": MODEL, "prompt": "hi", "stream": True}) as response:
        first, blank, done = (await response.text()).splitlines()[:3]
    assert json.loads(first.removeprefix("data: "))["choices"][0]["text"] == text
    assert (blank, done) == ("", "data: [DONE]")


async def test_a_finished_answer_drops_no_ticket(http, world: World):
    assert (await complete(http))[0] == 200
    assert world.prefill.dropped.empty()


async def test_too_many_at_once(http, world: World, monkeypatch):
    monkeypatch.setattr("flowserve.frontend.generation.MAX_RUNNING", 1)
    release = asyncio.Event()
    world.decode.script = [RIGHT[0], release, *RIGHT[1:]]
    first = asyncio.create_task(complete(http))
    await world.decode.reached.wait()
    status, body = await complete(http)
    assert (status, body["error"]["code"]) == (503, "overloaded")
    release.set()
    assert (await first)[0] == 200
