"""The fleet of ``xdeepserve_bench.engines`` with the little model that the golden answers are of."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from flowserve.wire import Limits
from xdeepserve_bench.engines import programs
from xdeepserve_bench.engines.fleet import Fleet, fleet
from xdeepserve_bench.engines.programs import C, Program

TOKEN = "a-control-token"
MODEL = Path(__file__).parents[3] / "examples/models/tiny-deepseek-v3"
LIMITS = Limits(
    max_context_tokens=512,
    max_batch=8,
    prefill_chunk_tokens=32,
    kv_blocks=128,
    kv_block_tokens=16,
    max_ranks=4,
    collective_timeout_seconds=5.0,
)


def tiny_fleet(directory: Path, limits: Limits = LIMITS) -> AbstractAsyncContextManager[Fleet]:
    """An empty fleet."""
    return fleet(directory, MODEL, limits, memory=directory / "shm", token=TOKEN)


async def start(module: str, config: C, directory: Path, **environment: str) -> Program[C]:
    """A process without a fleet."""
    return await programs.start(module, config, directory, token=TOKEN, memory=directory / "shm", **environment)
