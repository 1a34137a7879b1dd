"""``python -m xdeepserve_operator``: the operator's process."""

import asyncio
import logging
import sys

import structlog

from xdeepserve_operator.runtime.app import Settings, run


def main() -> int:
    """Logs JSON to standard error; returns the exit status."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    return asyncio.run(run(Settings.from_environment()))


if __name__ == "__main__":
    sys.exit(main())
