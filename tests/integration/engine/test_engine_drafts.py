"""Instances that draft answer as others do, with ranks that verify different numbers of tokens."""

from __future__ import annotations

import asyncio

from engine_fleet import LIMITS
from engine_reference import Reference

from flowserve.wire import DispatchReply, Sampling
from xdeepserve_bench.engines.fleet import GREEDY, Fleet

Golden = list[tuple[tuple[int, ...], list[int]]]
LONG_PROMPT = tuple(3 + (7 * i) % 300 for i in range(2 * LIMITS.prefill_chunk_tokens + 5))


async def test_drafts_change_no_token(fleet: Fleet, golden: Golden) -> None:
    limits = LIMITS.model_copy(update={"speculative_tokens": 2})
    prefill = await fleet.instance("sp", "Prefill", 1, limits)
    decode = await fleet.instance("sd", "Decode", 2, limits)
    wishes = [(golden[0][0], 32, GREEDY), (golden[1][0], 9, GREEDY), (LONG_PROMPT, 20, Sampling(top_k=3, seed=4))]

    async def stream(number: int, prompt: tuple[int, ...], tokens: int, sampling: Sampling) -> list[int]:
        request = await fleet.prefill(prefill, prompt, tokens, ignore_eos=True, sampling=sampling)
        config, status = decode.engines[number % 2].config, await decode.engine_status(number % 2)
        where = DispatchReply(host=config.host, api_port=8000, rank=number % 2, incarnation=status.incarnation)
        return await fleet.answer(where, request)

    answers = await asyncio.gather(*(stream(number, *wish) for number, wish in enumerate(wishes)))
    reference = Reference()
    assert answers == [reference.answer(*wish) for wish in wishes]
    assert all([(await decode.engine_status(number)).kv_usage == 0 for number in (0, 1)])
    async with fleet.session.get(decode.engines[0].control + "/metrics") as response:
        figures = dict(line.rsplit(" ", 1) for line in (await response.text()).splitlines() if "spec_decode" in line)
    assert float(figures['vllm:spec_decode_num_draft_tokens_total{model_name="tiny-deepseek-v3"}']) > 0
