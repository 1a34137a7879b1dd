"""Logprobs and several answers a request, as the official package sees them."""

import asyncio

import openai
import pytest

from flowserve.frontend.job import answer_seed
from flowserve.wire import Logprobs, TokenEvent
from tests.unit.flowserve_frontend.fakes import DIE, MODEL, World, answer

HELLO = [{"role": "user", "content": "hi"}]
SCRIPT = [
    TokenEvent(index=0, tokens=(11,), text="<11>", logprobs=(Logprobs(chosen=-0.5, best=((11, -0.5), (12, -1.5))),)),
    TokenEvent(
        index=1,
        tokens=(12, 13),
        text="<12><13>",
        logprobs=(Logprobs(chosen=-0.25, best=((12, -0.25),)), Logprobs(chosen=-2.0, best=((14, -0.125),))),
        finish_reason="stop",
    ),
]


async def test_logprobs_of_a_chat(client, world: World):
    world.decode.script = SCRIPT
    reply = await client.chat.completions.create(model=MODEL, messages=HELLO, logprobs=True, top_logprobs=2)
    content = reply.choices[0].logprobs.content
    assert [(each.token, each.logprob, bytes(each.bytes)) for each in content] == [
        ("<11>", -0.5, b"<11>"),
        ("<12>", -0.25, b"<12>"),
        ("<13>", -2.0, b"<13>"),
    ]
    assert [(each.token, each.logprob) for each in content[0].top_logprobs] == [("<11>", -0.5), ("<12>", -1.5)]
    assert world.prefill.requests[0].logprobs == world.decode.requests[0].logprobs == 2
    assert world.decode.requests[0].first_logprobs == Logprobs(chosen=-0.5)


async def test_logprobs_of_a_chat_in_chunks(client, world: World):
    world.decode.script = SCRIPT
    stream = await client.chat.completions.create(model=MODEL, messages=HELLO, logprobs=True, stream=True)
    choices = [chunk.choices[0] async for chunk in stream]
    assert [[each.token for each in choice.logprobs.content] if choice.logprobs else None for choice in choices] == [
        None,
        ["<11>"],
        ["<12>", "<13>"],
    ]
    assert world.decode.requests[0].logprobs == 0


@pytest.mark.parametrize("streamed", [False, True])
async def test_logprobs_of_a_plain_completion(client, world: World, streamed: bool):
    world.decode.script = SCRIPT
    reply = await client.completions.create(model=MODEL, prompt="a", logprobs=2, stream=streamed)
    choices = [chunk.choices[0] async for chunk in reply] if streamed else reply.choices
    found = [choice.logprobs for choice in choices]
    assert [token for each in found for token in each.tokens] == ["<11>", "<12>", "<13>"]
    assert [value for each in found for value in each.token_logprobs] == [-0.5, -0.25, -2.0]
    assert [offset for each in found for offset in each.text_offset] == [0, 4, 8]
    assert found[0].top_logprobs[0] == {"<11>": -0.5, "<12>": -1.5}


async def test_a_token_without_text_is_shown_with_its_logprobs(client, world: World):
    held = TokenEvent(index=0, tokens=(200,), logprobs=(Logprobs(chosen=-1.0),))
    world.decode.script = [held, TokenEvent(index=1, text="x", finish_reason="stop")]
    stream = await client.completions.create(model=MODEL, prompt="a", logprobs=0, stream=True)
    assert (await anext(stream)).choices[0].logprobs.token_logprobs == [-1.0]


async def test_several_answers(client, world: World):
    world.decode.scripts.extend([answer(11, 12), answer(21, 22, 23)])
    reply = await client.chat.completions.create(model=MODEL, messages=HELLO, n=2, seed=5)
    assert [choice.index for choice in reply.choices] == [0, 1]
    texts = {choice.message.content: len(choice.message.content) // 4 for choice in reply.choices}
    assert texts == {"<11><12>": 2, "<21><22><23>": 3}
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (len("U:hi\nA:"), 5)
    assert {each.sampling.seed for each in world.decode.requests} == {5, answer_seed(5, 1)}
    assert len({each.request_id for each in world.decode.requests}) == 2


async def test_several_answers_come_interleaved(client, world: World):
    first_waits = asyncio.Event()
    world.decode.scripts.extend([[*answer(11)[:1], first_waits, *answer(11, 12)[1:]], answer(21, 22)])
    stream = await client.chat.completions.create(
        model=MODEL, messages=HELLO, n=2, stream=True, stream_options={"include_usage": True}
    )
    texts, roles = {0: "", 1: ""}, []
    async for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            if choice.delta.role:
                roles.append(choice.index)
            if choice.finish_reason and not first_waits.is_set():
                assert sorted(texts.values()) == ["<11>", "<21><22>"]
                first_waits.set()
        usage = chunk.usage
    assert sorted(texts.values()) == ["<11><12>", "<21><22>"]
    assert sorted(roles) == [0, 1]
    assert usage.completion_tokens == 4


async def test_one_answer_that_is_lost_ends_all(client, world: World):
    held = asyncio.Event()
    world.decode.scripts.extend([[*answer(11)[:1], DIE], [*answer(21)[:1], held]])
    stream = await client.chat.completions.create(model=MODEL, messages=HELLO, n=2, stream=True)
    with pytest.raises(openai.APIError) as caught:
        async for _ in stream:
            pass
    assert caught.value.code == "engine_lost"
    await asyncio.wait_for(world.decode.cancelled.wait(), 5)
    assert {await world.prefill.dropped.get(), await world.prefill.dropped.get()} == {"ticket-1", "ticket-2"}
