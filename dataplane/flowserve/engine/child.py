"""The output process, as the engine sees it: started first of all, so that it starts while the model is loaded.

The engine and its output process live and die as one. If the output process ends, every stream of the engine has
ended with it, so the engine ends too and is started anew as a whole, by whoever started it and with its back-off,
rather than by a second restart loop in here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator

from flowserve.output.link import Link
from flowserve.process import CONFIG_VARIABLE
from flowserve.wire import EngineConfig

GRACE_SECONDS = 1.0


@contextlib.asynccontextmanager
async def output_process(config: EngineConfig) -> AsyncIterator[Link]:
    """The link to an output process that lasts as long as the context."""
    ours, theirs = socket.socketpair()
    with theirs:
        environment = {**os.environ, CONFIG_VARIABLE: config.model_dump_json()}
        arguments = (sys.executable, "-m", "flowserve.output", str(theirs.fileno()))
        process = await asyncio.create_subprocess_exec(*arguments, pass_fds=[theirs.fileno()], env=environment)
    link = await Link.over(ours)
    try:
        yield link
    finally:
        await link.close()
        try:
            await asyncio.wait_for(process.wait(), GRACE_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
