"""Engines that share no memory serve over TCP what they serve over shared memory."""

from __future__ import annotations

import asyncio

from xdeepserve_bench.engines.fleet import Fleet

Golden = list[tuple[tuple[int, ...], list[int]]]


async def test_ranks_on_different_hosts_serve_exactly(fleet: Fleet, golden: Golden) -> None:
    """KV travels from host to host, and so do the tokens of every MoE layer."""
    p = await fleet.instance("p", "Prefill", 1, apart=True)
    d = await fleet.instance("d", "Decode", 2, apart=True)

    async def stream(number: int) -> list[int]:
        prompt, expected = golden[number % 2]
        request = await fleet.prefill(p, prompt, len(expected), ignore_eos=True)
        return await fleet.answer(await d.dispatch(), request)

    answers = await asyncio.gather(*(stream(number) for number in range(4)))
    assert answers == [golden[number % 2][1] for number in range(4)]
