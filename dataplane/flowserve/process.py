"""How a process of the engine starts: its configuration, its logs, and the way it gives up.

The configuration is one JSON document, in a file (``--config FILE``) or in the environment variable
``XDEEPSERVE_CONFIG``. A process that can never work with what it was given (``Unusable``) ends with status 78
(``EX_CONFIG``) and one last line on standard error, ``xdeepserve: <Reason>: <message>``, from which whoever started
it can tell a bad configuration from a crash. Everything else that escapes is a crash: a traceback and status 1.
Logs are JSON lines on standard output.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Literal, NoReturn, TypeVar

import structlog
from pydantic import BaseModel, ValidationError

EXIT_UNUSABLE = 78
CONFIG_VARIABLE = "XDEEPSERVE_CONFIG"
TOKEN_VARIABLE = "XDEEPSERVE_CONTROL_TOKEN"

Reason = Literal["BadConfig", "CheckpointMissing", "CheckpointDamaged", "UnsupportedModel"]
M = TypeVar("M", bound=BaseModel)


class Unusable(Exception):
    """What the process was given will not work however often it is restarted."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def read_config(kind: type[M], arguments: Sequence[str] | None = None) -> M:
    """The process' configuration document. Raises Unusable(BadConfig)."""
    parser = argparse.ArgumentParser(description=f"Configuration: a JSON {kind.__name__} in ${CONFIG_VARIABLE}.")
    parser.add_argument("--config", type=Path, metavar="FILE", help="read the configuration from FILE instead")
    path: Path | None = parser.parse_args(arguments).config
    if path is None:
        origin, text = CONFIG_VARIABLE, os.environ.get(CONFIG_VARIABLE, "")
        if not text:
            raise Unusable("BadConfig", f"neither {CONFIG_VARIABLE} nor --config is given")
    else:
        origin = str(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Unusable("BadConfig", f"{path}: cannot be read: {error}") from error
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise Unusable("BadConfig", f"{origin}: {describe(error)}") from error


def control_token() -> str:
    """The deployment's token, which every control route asks for. Raises Unusable(BadConfig) if there is none."""
    token = os.environ.get(TOKEN_VARIABLE, "")
    if not token:
        raise Unusable("BadConfig", f"{TOKEN_VARIABLE} is not set: control routes need a token")
    return token


def describe(error: ValidationError) -> str:
    """What pydantic found wrong, one ``field: reason`` each, without the values (they may be secret or huge)."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'document'}: {each['msg']}" for each in found)


def configure_logs(**fields: str) -> None:
    """JSON lines on standard output, each with ``fields``."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.WriteLoggerFactory(sys.stdout),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(**fields)


async def together(*work: Coroutine[None, None, None]) -> None:
    """Runs all of ``work`` until the first of it ends, raises what that raised, and cancels the rest."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until_stopped(work: Coroutine[None, None, None]) -> None:
    """Runs ``work`` to its end, or until SIGTERM or SIGINT cancels it, which is an orderly end too."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def run(main: Callable[[], None]) -> NoReturn:
    """Runs a process' ``main`` and ends the process as the module says."""
    try:
        main()
    except Unusable as error:
        sys.stdout.flush()
        line = " ".join(str(error).split())
        print(f"xdeepserve: {error.reason}: {line}", file=sys.stderr, flush=True)
        sys.exit(EXIT_UNUSABLE)
    sys.exit(0)
