"""``python -m flowserve.engine``: one DP group's process."""

from __future__ import annotations

import asyncio
import os

import structlog

from flowserve import process
from flowserve.engine.child import output_process
from flowserve.wire import EngineConfig


async def serve(config: EngineConfig, token: str) -> None:
    """The output process starts while this one still imports what it computes with; a warm one then waits."""
    async with output_process(config) as link:
        from flowserve.engine.engine import Engine

        async def work() -> None:
            given = await _assigned(config, token) if config.warm else config
            await Engine(given, token, link).run()

        await process.until_stopped(work())


async def _assigned(config: EngineConfig, token: str) -> EngineConfig:
    from flowserve.engine.warm import assignment

    given = await assignment(config, token)
    structlog.contextvars.bind_contextvars(name=given.name, instance=given.instance)
    return given


def main() -> None:
    """Raises Unusable."""
    config = process.read_config(EngineConfig)
    process.configure_logs(process="engine", name=config.name, instance=config.instance)
    # One thread a rank: a die's arithmetic must neither wait for other cores nor take them from other dies.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    asyncio.run(serve(config, process.control_token()))


if __name__ == "__main__":
    process.run(main)
