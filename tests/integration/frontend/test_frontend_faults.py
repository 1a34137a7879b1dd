"""What clients see when engines die under them, and how a frontend itself ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from engine_fleet import start
from engine_reference import Reference
from frontend_process import NAME, FrontendProcess

from flowserve.wire import FrontendConfig
from xdeepserve_bench.engines.instance import Instance
from xdeepserve_bench.engines.programs import until
from xdeepserve_demo.client import StreamResult, stream_chat, verify

Breakable = tuple[FrontendProcess, Instance, Instance]
TOKENS = 600


async def begun(frontend: FrontendProcess) -> list[asyncio.Task[StreamResult]]:
    """A long stream for each rank, whose client has seen a token: before, it would be tried again on another rank."""
    results = [StreamResult(), StreamResult()]
    tasks = [
        asyncio.create_task(stream_chat(frontend.url, NAME, f"prompt {number}", TOKENS, ignore_eos=True, into=result))
        for number, result in enumerate(results)
    ]

    async def streaming() -> bool | None:
        return all(result.token_ids for result in results) or None

    await until(streaming, "tokens come")
    return tasks


async def test_a_rank_dies_under_streams(breakable: Breakable) -> None:
    frontend, _, decode = breakable
    tasks = await begun(frontend)
    await decode.engines[1].kill()
    await decode.launch(1)
    await decode.form()
    results = await asyncio.gather(*tasks)

    reference = Reference()
    expected = [reference.answer(tuple(result.prompt_token_ids), TOKENS) for result in results]
    verdict = verify(results, expected)
    assert verdict.violations == []
    assert (verdict.ok, verdict.retryable) == (1, 1)
    assert {result.error.code for result in results if result.error} == {"engine_lost"}

    again = await stream_chat(frontend.url, NAME, "prompt 0", 100, ignore_eos=True)
    assert verify([again], [expected[0][:100]]).ok == 1


async def test_a_frontend_ends_in_good_order_and_is_replaced(breakable: Breakable) -> None:
    frontend, prefill, decode = breakable
    tasks = await begun(frontend)
    frontend.terminate()

    async def not_ready() -> bool | None:
        return True if await frontend.http_status("/health/ready") == 503 else None

    await until(not_ready, "the frontend is not ready any more", 1)
    results = await asyncio.gather(*tasks)
    assert [(result.error, len(result.token_ids)) for result in results] == [(None, TOKENS)] * 2
    assert frontend.process is not None
    assert await asyncio.wait_for(frontend.process.wait(), 10) == 0

    await frontend.launch()
    result = await stream_chat(frontend.url, NAME, "hello", 8)
    assert result.error is not None
    assert result.error.code == "no_ready_prefill"
    await frontend.route_to(prefill, decode)
    assert (await stream_chat(frontend.url, NAME, "hello", 8)).error is None


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("file:///nowhere/at/all", "CheckpointMissing"),
        ("https://example.org/model", "BadConfig"),
        ("damaged", "CheckpointDamaged"),
    ],
)
async def test_a_frontend_that_can_never_work_says_so(tmp_path: Path, uri: str, reason: str) -> None:
    if uri == "damaged":
        (tmp_path / "model").mkdir()
        (tmp_path / "model/tokenizer.json").write_text("{")
        uri = (tmp_path / "model").as_uri()
    config = FrontendConfig(deployment="chat", model_name=NAME, model_uri=uri, api_port=0, control_port=0)
    program = await start("flowserve.frontend", config, tmp_path)
    assert await asyncio.wait_for(program.process.wait(), 20) == 78
    assert program.log.read_text().splitlines()[-1].startswith(f"xdeepserve: {reason}: ")
