"""``python -m xdeepserve_operator``: the operator's process."""

import asyncio
import gc
import logging
import sys

import structlog

from xdeepserve_operator.runtime.app import Settings, run
from xdeepserve_operator.runtime.moderation import moderated_loop

# Objects come and stay in tens of thousands and hold no cycles: looking for some took half the time of decoding them.
COLLECT_AFTER = (50_000, 20, 20)


def main() -> int:
    """Runs the operator; returns the exit status."""
    log_json()
    gc.set_threshold(*COLLECT_AFTER)
    with asyncio.Runner(loop_factory=moderated_loop) as runner:
        return runner.run(run(Settings.from_environment()))


def log_json() -> None:
    """One JSON document a line on standard error, whichever library speaks: ours from INFO on, others from WARNING."""
    processors: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    render = structlog.processors.JSONRenderer()
    structlog.configure(processors=[*processors, render], logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=render, foreign_pre_chain=processors))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("xdeepserve_operator").setLevel(logging.INFO)


if __name__ == "__main__":
    sys.exit(main())
