"""Requests that must be refused before any engine hears of them."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.unit.flowserve_frontend.fakes import CONFIG, MODEL, World, running_world

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAT = "/v1/chat/completions"
PLAIN = "/v1/completions"
USER = [{"role": "user", "content": "hi"}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    """One frontend for the whole table."""
    async with running_world() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http(world: World) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(world.url) as session:
        yield session


def chat(**fields: Any) -> tuple[str, str]:
    return CHAT, json.dumps({"model": MODEL, "messages": USER, **fields})


def plain(**fields: Any) -> tuple[str, str]:
    return PLAIN, json.dumps({"model": MODEL, "prompt": "hi", **fields})


@pytest.mark.parametrize(
    ("request_", "param", "code"),
    [
        ((CHAT, ""), None, "invalid_json"),
        ((CHAT, "{"), None, "invalid_json"),
        ((CHAT, "\udcff"), None, "invalid_json"),
        ((CHAT, "[" * 4000), None, "invalid_json"),
        ((CHAT, '{"model": "\\ud800"}'), None, "invalid_json"),
        ((CHAT, "[]"), None, "invalid_value"),
        ((CHAT, "{}"), "model", "invalid_value"),
        ((CHAT, json.dumps({"model": MODEL})), "messages", "invalid_value"),
        (chat(messages=[]), "messages", "invalid_value"),
        (chat(messages="hi"), "messages", "invalid_value"),
        (chat(messages=[{"role": "user"}]), "messages", "invalid_value"),
        (chat(messages=[{"role": "user", "content": [{"type": "image_url"}]}]), "messages", "invalid_value"),
        (chat(messages=[{"role": "wizard", "content": "hi"}]), "messages", None),
        (chat(max_tokens=0), "max_tokens", "invalid_value"),
        (chat(max_tokens="8"), "max_tokens", "invalid_value"),
        (chat(max_tokens=True), "max_tokens", "invalid_value"),
        (chat(max_tokens=10**30), "messages", "context_length_exceeded"),
        (chat(max_completion_tokens=-1), "max_completion_tokens", "invalid_value"),
        (chat(temperature=-0.1), "temperature", "invalid_value"),
        ((CHAT, f'{{"model":"{MODEL}","messages":[],"temperature":NaN}}'), "temperature", "invalid_value"),
        (chat(top_p=0), "top_p", "invalid_value"),
        (chat(top_k=-2), "top_k", "invalid_value"),
        (chat(seed="x"), "seed", "invalid_value"),
        (chat(stop=""), "stop", "invalid_value"),
        (chat(stop=["a"] * 5), "stop", "invalid_value"),
        (chat(stop=["a" * 257]), "stop", "invalid_value"),
        (chat(stream="yes"), "stream", "invalid_value"),
        (chat(stream_options={"include_usage": True}), "stream_options", None),
        (chat(n=0), "n", "invalid_value"),
        (chat(n=129), "n", "invalid_value"),
        (chat(logit_bias={"5": 1}), "logit_bias", "unsupported_parameter"),
        (chat(logprobs=1), "logprobs", "invalid_value"),
        (chat(top_logprobs=2), "top_logprobs", None),
        (chat(logprobs=True, top_logprobs=21), "top_logprobs", "invalid_value"),
        (chat(min_p=1.5), "min_p", "invalid_value"),
        (chat(repetition_penalty=0), "repetition_penalty", "invalid_value"),
        (chat(frequency_penalty=-3), "frequency_penalty", "invalid_value"),
        (chat(stop_token_ids=[-1]), "stop_token_ids", "invalid_value"),
        (chat(stop_token_ids=[1] * 65), "stop_token_ids", "invalid_value"),
        (chat(tools=[{"type": "function"}]), "tools", "unsupported_parameter"),
        (chat(response_format={"type": "json_object"}), "response_format", "unsupported_parameter"),
        (chat(presence_penalty=2.5), "presence_penalty", "invalid_value"),
        (chat(messages=[{"role": "user", "content": "x" * 300}]), "messages", "context_length_exceeded"),
        (plain(max_tokens=300), "prompt", "context_length_exceeded"),
        (plain(logprobs=True), "logprobs", "invalid_value"),
        (plain(logprobs=21), "logprobs", "invalid_value"),
        (plain(best_of=2), "best_of", "unsupported_parameter"),
        (plain(echo=True), "echo", "unsupported_parameter"),
        (plain(prompt=""), "prompt", "empty_prompt"),
        (plain(prompt=[]), "prompt", "empty_prompt"),
        (plain(prompt=[[]]), "prompt", "empty_prompt"),
        (plain(prompt=["a", "b"]), "prompt", "unsupported_parameter"),
        (plain(prompt=[256]), "prompt", "invalid_token"),
        (plain(prompt=[-1]), "prompt", "invalid_token"),
        (plain(prompt=[1, "a"]), "prompt", "invalid_value"),
        (plain(prompt=None), "prompt", "invalid_value"),
        (plain(prompt=[1.5]), "prompt", "invalid_value"),
    ],
)
async def test_refused_with_400(http: aiohttp.ClientSession, world: World, request_, param, code):
    path, body = request_
    dispatched = len(world.prefill.dispatches)
    async with http.post(path, data=body.encode(errors="surrogateescape")) as response:
        error = (await response.json())["error"]
    assert response.status == 400
    assert error["type"] == "invalid_request_error"
    assert (error["param"], error["code"]) == (param, code)
    assert error["message"]
    assert len(world.prefill.dispatches) == dispatched


@pytest.mark.parametrize(
    "request_",
    [
        chat(user="me", metadata={}, something_new=[1], n=1, logprobs=False, tools=[], presence_penalty=0),
        chat(max_tokens=None, temperature=None, top_p=None, seed=None, stop=None, stream=None, top_k=None),
        plain(prompt=["hi"], best_of=1, echo=False, suffix=None, logprobs=None),
        plain(prompt=[[104, 105]], stop=[]),
        plain(seed=-(2**70), top_k=-1, min_p=0, stop_token_ids=[], best_of=None),
        chat(top_logprobs=0, logprobs=None, temperature=0, repetition_penalty=1),
    ],
)
async def test_what_asks_for_nothing_special_is_taken(http: aiohttp.ClientSession, request_):
    path, body = request_
    async with http.post(path, data=body) as response:
        assert response.status == 200, await response.text()


async def test_no_message_repeats_the_prompt(http: aiohttp.ClientSession, capfd):
    secret = "correct horse battery staple"
    for request in (chat(messages=[{"role": "user", "content": secret, "n": 1}], n=0), plain(prompt=[secret, secret])):
        async with http.post(request[0], data=request[1]) as response:
            assert response.status == 400
            assert secret not in await response.text()
    output = capfd.readouterr()
    assert secret not in output.out + output.err


async def test_unknown_path_and_wrong_method(http: aiohttp.ClientSession):
    async with http.get("/v1/nothing") as response:
        assert response.status == 404
        assert (await response.json())["error"]["code"] == "unknown_url"
    async with http.get(CHAT) as response:
        assert response.status == 405
        assert response.headers["allow"] == "POST"
        assert (await response.json())["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_above_the_limit(http: aiohttp.ClientSession, world: World, chunked):
    async def pieces():
        for _ in range(6):
            yield b" " * 1000

    data = pieces() if chunked else b" " * (CONFIG.max_body_bytes + 1)
    async with http.post(CHAT, data=data) as response:
        assert response.status == 413
        assert (await response.json())["error"]["code"] == "body_too_large"
        assert response.headers["connection"] == "close"


async def test_an_endless_body_is_cut(world: World):
    reader, writer = await asyncio.open_connection("127.0.0.1", int(world.url.rpartition(":")[2]))
    writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
    piece = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    for _ in range(5):
        writer.write(piece)
    assert (await reader.readline()).startswith(b"HTTP/1.1 413")
    writer.close()


async def test_a_client_that_leaves_within_its_body_is_no_defect(world: World, http: aiohttp.ClientSession):
    reader, writer = await asyncio.open_connection("127.0.0.1", int(world.url.rpartition(":")[2]))
    writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()
    async with http.get("/metrics") as response:
        assert 'route="/v1/completions",status="499"} 1' in await response.text()


async def test_a_body_that_does_not_come(http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("flowserve.frontend.api.BODY_SECONDS", 0.05)

    async def stuck():
        yield b"{"
        await asyncio.Event().wait()

    async with http.post(CHAT, data=stuck()) as response:
        assert response.status == 408
        assert (await response.json())["error"]["code"] == "body_too_slow"


async def test_a_model_without_a_chat_template_still_completes():
    async with running_world(template=False) as world, aiohttp.ClientSession(world.url) as http:
        async with http.post(CHAT, data=chat()[1]) as response:
            assert response.status == 400
            assert "/v1/completions" in await response.text()
        async with http.post(PLAIN, data=plain()[1]) as response:
            assert response.status == 200


async def test_api_keys():
    async with running_world(api_keys=["first", "second"]) as world, aiohttp.ClientSession(world.url) as http:

        async def status(path: str, authorization: str | None) -> int:
            headers = {"authorization": authorization} if authorization else {}
            async with http.get(path, headers=headers) as response:
                return response.status

        assert await status("/v1/models", None) == 401
        assert await status("/v1/models", "Bearer wrong") == 401
        assert await status("/v1/models", "Bearer first") == 200
        assert await status("/v1/models", "Bearer second") == 200
        assert await status("/health/ready", None) == 200
        assert await status("/metrics", None) == 200
        # Without a key the body is not even read: this one is malformed and far too long.
        async with http.post(CHAT, data=b"x" * 10_000) as response:
            assert response.status == 401
            assert (await response.json())["error"]["code"] == "invalid_api_key"
