"""The streaming client of demo, benchmarks and tests, and its judgement of what it saw."""

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.flowserve_frontend.fakes import DIE, HOST, MODEL, World, answer, listening_anywhere
from xdeepserve_demo.client import StreamError, StreamResult, Verdict, run_load, stream_chat, verify

LOST = StreamError("engine_lost", "gone", retryable=True)
EXPECTED = [5, 6, 7, 8]


def judged(tokens: list[int], error: StreamError | None = None, finish: str | None = "length") -> Verdict:
    return verify([StreamResult(token_ids=tokens, finish_reason=None if error else finish, error=error)], [EXPECTED])


def test_a_right_stream():
    assert judged(EXPECTED) == Verdict(1, 0, [])


@pytest.mark.parametrize("sent", range(5))
def test_a_prefix_and_a_retryable_error_is_excused(sent):
    assert judged(EXPECTED[:sent], LOST) == Verdict(0, 1, [])


@pytest.mark.parametrize(
    ("tokens", "error", "problem"),
    [
        ([5, 6, 7], None, "lost the last 1 of 4 tokens"),
        ([5, 7, 8], None, "lost 1 tokens at token 1"),
        ([5, 6, 6, 7], None, "repeated 1 tokens at token 2"),
        ([5, 6, 5, 6, 7, 8], None, "repeated 2 tokens at token 2"),
        ([5, 7, 6, 8], None, "reordered tokens from token 1"),
        ([5, 6, 9, 8], None, "wrong token 2: 9 for 7"),
        ([5, 6, 7, 8, 9], None, "went on for 1 tokens after its end"),
        ([5, 7], LOST, "lost 1 tokens at token 1"),
        ([5, 6], StreamError("internal_error", "defect", retryable=False), "cannot be retried"),
    ],
)
def test_a_broken_promise_is_named(tokens, error, problem):
    (violation,) = judged(tokens, error).violations
    assert problem in violation


def test_an_end_without_a_reason_is_a_violation():
    assert judged(EXPECTED, finish=None).violations


@given(st.lists(st.integers(0, 3), max_size=8), st.lists(st.integers(0, 3), max_size=8))
def test_only_equal_tokens_are_ok_and_only_prefixes_excused(got, expected):
    result = StreamResult(token_ids=got, finish_reason="length")
    assert verify([result], [expected]).ok == (got == expected)
    result.error = LOST
    assert verify([result], [expected]).retryable == (expected[: len(got)] == got)


async def test_a_stream(world: World):
    result = await stream_chat(world.url, MODEL, "hi", 8)
    assert (result.token_ids, result.text, result.finish_reason) == ([11, 12, 13], "<11><12><13>", "stop")
    assert bytes(result.prompt_token_ids) == b"U:hi\nA:"
    assert result.error is None
    assert 0 < result.ttft_s <= result.duration_s
    assert len(result.gaps) == 2
    assert world.decode.requests[0].sampling.temperature == 0


async def test_a_stream_that_breaks(world: World):
    world.decode.script = [*answer(31, 32)[:2], DIE]
    result = await stream_chat(world.url, MODEL, "hi", 8)
    assert result.token_ids == [31, 32]
    assert result.finish_reason is None
    assert result.error is not None
    assert (result.error.code, result.error.retryable) == ("engine_lost", True)


async def test_refusals_and_dead_servers(world: World):
    unknown = (await stream_chat(world.url, "other", "hi", 8)).error
    assert unknown is not None
    assert (unknown.code, unknown.retryable) == ("model_not_found", False)
    world.route_to()
    not_ready = (await stream_chat(world.url, MODEL, "hi", 8)).error
    assert not_ready is not None
    assert (not_ready.code, not_ready.retryable) == ("no_ready_prefill", True)
    dead = (await stream_chat("http://127.0.0.1:1", MODEL, "hi", 8)).error
    assert dead is not None
    assert (dead.code, dead.retryable) == ("connection_lost", True)


async def test_a_load_keeps_the_order_of_its_prompts(world: World):
    prompts = [f"prompt {number}" for number in range(12)]
    results = await run_load(world.url, MODEL, prompts, 4, max_tokens=8)
    assert [bytes(result.prompt_token_ids).decode() for result in results] == [f"U:{each}\nA:" for each in prompts]
    assert verify(results, [[11, 12, 13]] * 12) == Verdict(12, 0, [])


@pytest.mark.parametrize("body", [b"data: {\n\n", b"data: {}\n\n", b"data: [1]\n\n"])
async def test_a_malformed_stream_is_a_result_too(body):
    async def malformed(_request: web.Request) -> web.Response:
        return web.Response(body=body)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", malformed)
    async with listening_anywhere(app) as port:
        error = (await stream_chat(f"http://{HOST}:{port}", MODEL, "hi", 8)).error
    assert error is not None
    assert (error.code, error.retryable) == ("malformed", False)
