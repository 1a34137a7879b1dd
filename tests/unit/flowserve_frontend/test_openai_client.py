"""The official package, unchanged, against a running frontend."""

import openai
import pytest

from flowserve.wire import Refusal, TokenEvent
from tests.unit.flowserve_frontend.fakes import DIE, MODEL, World, answer

HELLO = [{"role": "user", "content": "hi"}]
PROMPT_TOKENS = len("U:hi\nA:")


async def test_models(client):
    listed = [model.id async for model in client.models.list()]
    assert listed == [MODEL]
    assert (await client.models.retrieve(MODEL)).owned_by == "xdeepserve"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("other")


async def test_chat(client, world: World):
    reply = await client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]}],
        max_completion_tokens=8,
        temperature=0.5,
        top_p=0.9,
        seed=-1,
        stop="END",
        presence_penalty=0.25,
        frequency_penalty=-0.5,
        extra_body={
            "top_k": 5,
            "min_p": 0.125,
            "repetition_penalty": 1.5,
            "stop_token_ids": [7, 8],
            "ignore_eos": True,
            "return_token_ids": True,
        },
    )
    assert reply.choices[0].message.content == "<11><12><13>"
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage.prompt_tokens == PROMPT_TOKENS
    assert reply.usage.completion_tokens == 3
    assert reply.usage.total_tokens == PROMPT_TOKENS + 3
    assert reply.usage.prompt_tokens_details.cached_tokens == 2
    assert reply.choices[0].token_ids == [11, 12, 13]
    assert bytes(reply.prompt_token_ids) == b"U:hi\nA:"

    (asked,) = world.decode.requests
    assert asked.max_tokens == 8
    assert asked.stop == ("END",)
    assert asked.stop_token_ids == (7, 8)
    assert asked.logprobs is None
    assert asked.ignore_eos
    assert asked.sampling.model_dump(exclude_defaults=True) == {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "min_p": 0.125,
        "presence_penalty": 0.25,
        "frequency_penalty": -0.5,
        "repetition_penalty": 1.5,
        "seed": 2**63 - 1,
    }


async def test_the_decode_engine_gets_what_the_prefill_engine_gave(client, world: World):
    await client.completions.create(model=MODEL, prompt="hello", max_tokens=4)
    (prefilled,), (decoded,) = world.prefill.requests, world.decode.requests
    assert prefilled.ticket is None
    assert decoded.first_token == 11
    assert decoded.ticket is not None
    assert decoded.ticket.id == "ticket-1"
    assert decoded.request_id == prefilled.request_id
    assert decoded.sampling == prefilled.sampling
    assert world.prefill.dispatches[0].tokens == 5
    assert world.decode.dispatches[0].tokens == 9


async def test_chat_stream(client, world: World):
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=HELLO,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"return_token_ids": True},
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert bytes(chunks[0].prompt_token_ids) == b"U:hi\nA:"
    assert not any(hasattr(chunk, "prompt_token_ids") for chunk in chunks[1:])
    content = [chunk.choices[0] for chunk in chunks[:-1]]
    assert "".join(choice.delta.content or "" for choice in content) == "<11><12><13>"
    assert [token for choice in content for token in choice.token_ids] == [11, 12, 13]
    assert [choice.finish_reason for choice in content] == [None, None, None, None, "stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 3
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens == 2
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1


async def test_completion_stream(client, world: World):
    world.decode.script = answer(21, 22, finish="length")
    stream = await client.completions.create(
        model=MODEL, prompt=[1, 2, 3], max_tokens=2, stream=True, extra_body={"return_token_ids": True}
    )
    choices = [chunk.choices[0] async for chunk in stream]
    assert "".join(choice.text for choice in choices) == "<21><22>"
    assert [token for choice in choices for token in choice.token_ids] == [21, 22]
    assert choices[0].prompt_token_ids == [1, 2, 3]
    assert choices[-1].finish_reason == "length"


async def test_tokens_without_text_are_seen_only_by_those_who_ask_for_ids(client, world: World):
    world.decode.script = [
        TokenEvent(index=0, tokens=(200,)),
        TokenEvent(index=1, tokens=(201,), text="é"),
        TokenEvent(index=2, finish_reason="stop"),
    ]
    plain = await client.completions.create(model=MODEL, prompt="a", stream=True)
    assert [chunk.choices[0].text async for chunk in plain] == ["é", ""]
    with_ids = await client.completions.create(
        model=MODEL, prompt="a", stream=True, extra_body={"return_token_ids": True}
    )
    assert [chunk.choices[0].token_ids async for chunk in with_ids] == [[200], [201], []]


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        ({"model": "other"}, 404, "model_not_found"),
        ({"n": 0}, 400, "invalid_value"),
        ({"logit_bias": {"1": 5}}, 400, "unsupported_parameter"),
        ({"max_tokens": 4000}, 400, "context_length_exceeded"),
        ({"temperature": 3}, 400, "invalid_value"),
    ],
)
async def test_errors_are_of_the_right_class(client, arguments, status, code):
    with pytest.raises(openai.APIStatusError) as caught:
        await client.chat.completions.create(**{"model": MODEL, "messages": HELLO, **arguments})
    assert caught.value.status_code == status
    assert caught.value.code == code
    assert caught.value.request_id
    assert type(caught.value) is {400: openai.BadRequestError, 404: openai.NotFoundError}[status]


async def test_an_engine_lost_in_mid_stream_raises_and_is_never_repeated(client, world: World):
    world.decode.script = [*answer(31, 32)[:2], DIE]
    stream = await client.chat.completions.create(model=MODEL, messages=HELLO, stream=True)
    assert [(await anext(stream)).choices[0].delta.content for _ in range(3)] == ["", "<31>", "<32>"]
    with pytest.raises(openai.APIError) as caught:
        await anext(stream)
    assert caught.value.code == "engine_lost"
    assert caught.value.body["retryable"] is True
    assert len(world.decode.requests) == 1
    assert await world.prefill.dropped.get() == "ticket-1"


async def test_the_client_retries_a_503_by_itself(world: World):
    world.route_to(world.prefill.target())
    async with openai.AsyncOpenAI(base_url=f"{world.url}/v1", api_key="any", max_retries=0) as impatient:
        with pytest.raises(openai.InternalServerError) as caught:
            await impatient.chat.completions.create(model=MODEL, messages=HELLO)
    assert caught.value.code == "no_ready_decode"
    assert caught.value.response.headers["retry-after"] == "1"


async def test_a_refusal_for_good_is_an_internal_error(client, world: World):
    world.prefill.refusals.append((400, Refusal(error="prompt is longer than this engine's context")))
    with pytest.raises(openai.InternalServerError) as caught:
        await client.chat.completions.create(model=MODEL, messages=HELLO)
    assert caught.value.status_code == 500
    assert len(world.prefill.dispatches) == 1
