"""The whole path with real processes: OpenAI's API in, the reference model's tokens out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from engine_fleet import LIMITS, TOKEN
from engine_reference import Reference
from frontend_process import NAME, FrontendProcess

from xdeepserve_bench.engines.instance import Instance
from xdeepserve_bench.engines.programs import until
from xdeepserve_demo.client import Verdict, run_load, stream_chat, verify

pytestmark = pytest.mark.asyncio(loop_scope="module")
Shared = tuple[FrontendProcess, Instance, Instance]
GOLDEN = Path(__file__).parents[2] / "data/tiny-deepseek-v3/golden.npz"
RESIDENT_KB = 92_000


async def test_the_official_client_gets_the_reference_tokens(shared: Shared) -> None:
    frontend, *_ = shared
    async with openai.AsyncOpenAI(base_url=f"{frontend.url}/v1", api_key="any") as client:
        for row in np.load(GOLDEN)["greedy"].tolist():
            stream = await client.completions.create(
                model=NAME,
                prompt=row[:16],
                max_tokens=32,
                temperature=0,
                stream=True,
                extra_body={"ignore_eos": True, "return_token_ids": True},
            )
            choices = [chunk.choices[0] async for chunk in stream]
            assert [token for choice in choices for token in choice.token_ids] == row[16:]
            assert choices[-1].finish_reason == "length"


async def test_many_streams_at_once_are_all_right(shared: Shared) -> None:
    frontend, *_ = shared
    prompts = [f"Tell me about expert number {number % 5}." for number in range(24)]
    results = await run_load(frontend.url, NAME, prompts, 8, max_tokens=24, ignore_eos=True)
    reference = Reference()
    known = {prompt: reference.answer(tuple(results[i].prompt_token_ids), 24) for i, prompt in enumerate(prompts[:5])}
    assert verify(results, [known[prompt] for prompt in prompts]) == Verdict(24, 0, [])
    assert all(result.text for result in results)


async def test_a_whole_answer_is_the_streamed_one(shared: Shared) -> None:
    frontend, *_ = shared
    streamed = await stream_chat(frontend.url, NAME, "hello", 24, ignore_eos=True)
    async with openai.AsyncOpenAI(base_url=f"{frontend.url}/v1", api_key="any") as client:
        whole = await client.chat.completions.create(
            model=NAME,
            messages=[{"role": "user", "content": "hello"}],
            max_tokens=24,
            temperature=0,
            extra_body={"ignore_eos": True, "return_token_ids": True},
        )
    assert whole.choices[0].message.content == streamed.text
    assert whole.choices[0].token_ids == streamed.token_ids
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 24


async def test_sampling_parameters_reach_the_engines(shared: Shared) -> None:
    frontend, *_ = shared
    async with openai.AsyncOpenAI(base_url=f"{frontend.url}/v1", api_key="any") as client:

        async def tokens(**arguments: Any) -> list[int]:
            extra = {"ignore_eos": True, "return_token_ids": True, **arguments.pop("extra_body", {})}
            reply = await client.completions.create(
                model=NAME,
                prompt="hello",
                max_tokens=16,
                extra_body=extra,
                **{"temperature": 0, "seed": 3, **arguments},
            )
            found: list[int] = reply.choices[0].token_ids
            return found

        plain = await tokens()
        assert len(set(await tokens(presence_penalty=2, frequency_penalty=2))) > len(set(plain))
        assert await tokens(extra_body={"repetition_penalty": 10}) != plain
        assert await tokens(temperature=2, extra_body={"min_p": 1}) == plain
        stopped = await tokens(extra_body={"stop_token_ids": [plain[4]]})
        assert stopped == plain[: plain.index(plain[4]) + 1]


async def test_logprobs_are_the_engines(shared: Shared) -> None:
    frontend, *_ = shared
    async with openai.AsyncOpenAI(base_url=f"{frontend.url}/v1", api_key="any") as client:
        chat = await client.chat.completions.create(
            model=NAME,
            messages=[{"role": "user", "content": "hello"}],
            max_tokens=8,
            temperature=0,
            logprobs=True,
            top_logprobs=3,
            extra_body={"ignore_eos": True},
        )
        assert chat.choices[0].logprobs is not None
        content = chat.choices[0].logprobs.content
        assert content is not None
        assert len(content) == 8
        assert all(each.logprob == each.top_logprobs[0].logprob < 0 for each in content)
        assert (
            b"".join(bytes(each.bytes or ()) for each in content)
            .decode(errors="replace")
            .startswith((chat.choices[0].message.content or "")[:4])
        )
        plain = await client.completions.create(model=NAME, prompt="hello", max_tokens=4, logprobs=1)
        assert plain.choices[0].logprobs is not None
        assert len(plain.choices[0].logprobs.token_logprobs or ()) == len(plain.choices[0].logprobs.tokens or ())


async def test_answers_of_one_request_differ_and_repeat_themselves(shared: Shared) -> None:
    frontend, *_ = shared
    async with openai.AsyncOpenAI(base_url=f"{frontend.url}/v1", api_key="any") as client:
        wish: dict[str, Any] = {"model": NAME, "prompt": "hello", "max_tokens": 12, "n": 3, "seed": 11}
        whole = await client.completions.create(**wish)
        texts = [choice.text for choice in whole.choices]
        assert len(set(texts)) == 3
        streamed = ["", "", ""]
        async for chunk in await client.completions.create(**wish, stream=True):
            for choice in chunk.choices:
                streamed[choice.index] += choice.text
        assert streamed == texts


async def test_a_prompt_that_was_there_before_is_found_again(shared: Shared) -> None:
    frontend, *_ = shared
    async with openai.AsyncOpenAI(base_url=f"{frontend.url}/v1", api_key="any") as client:
        prompt = [7 + number % 250 for number in range(100)]
        replies = [
            await client.completions.create(model=NAME, prompt=prompt, max_tokens=8, temperature=0) for _ in range(2)
        ]
    details = [reply.usage and reply.usage.prompt_tokens_details for reply in replies]
    whole_blocks = 96 // LIMITS.kv_block_tokens * LIMITS.kv_block_tokens
    assert [each and each.cached_tokens for each in details] == [0, whole_blocks]
    assert replies[0].choices[0].text == replies[1].choices[0].text


async def test_a_client_that_leaves_frees_the_engines(shared: Shared) -> None:
    frontend, prefill, decode = shared
    call = asyncio.create_task(stream_chat(frontend.url, NAME, "hello", 400, ignore_eos=True))

    async def used() -> bool | None:
        statuses = [await decode.engine_status(rank) for rank in range(2)]
        return True if any(status.kv_usage for status in statuses) else None

    async def unused() -> bool | None:
        statuses = [await decode.engine_status(rank) for rank in range(2)]
        statuses.append(await prefill.engine_status(0))
        return None if any(status.kv_usage for status in statuses) else True

    await until(used, "the request is decoded")
    call.cancel()
    await until(unused, "its blocks are free", 5)
    assert (await frontend.status()).active == 0


async def test_the_longest_context_fits_and_one_token_more_does_not(shared: Shared) -> None:
    frontend, *_ = shared
    async with openai.AsyncOpenAI(base_url=f"{frontend.url}/v1", api_key="any") as client:
        full = [5] * (LIMITS.max_context_tokens - 4)
        reply = await client.completions.create(model=NAME, prompt=full, max_tokens=4)
        assert reply.usage is not None
        assert reply.usage.prompt_tokens == len(full)
        with pytest.raises(openai.BadRequestError) as caught:
            await client.completions.create(model=NAME, prompt=full, max_tokens=5)
        assert caught.value.code == "context_length_exceeded"


async def test_memory_stays_small(shared: Shared) -> None:
    frontend, *_ = shared
    assert frontend.process is not None
    assert resident_kb(frontend.process.pid) < RESIDENT_KB


def resident_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


async def test_logs_have_request_ids_and_neither_prompts_nor_keys(shared: Shared) -> None:
    frontend, *_ = shared
    secret = "correct horse battery staple"
    async with openai.AsyncOpenAI(base_url=f"{frontend.url}/v1", api_key="a-key") as client:
        reply = await client.completions.with_raw_response.create(model=NAME, prompt=secret, max_tokens=4)

    async def logged() -> str | None:
        log = frontend.log.read_text()
        return log if f'"request_id": "{reply.headers["x-request-id"]}"' in log else None

    log = await until(logged, "the request is logged")
    assert not any(word in log for word in (secret, "a-key", TOKEN))
