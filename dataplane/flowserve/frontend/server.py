"""The frontend's process: two listeners, one event loop, an orderly end.

On SIGTERM or SIGINT the frontend is first not ready, still serves for a moment while those who send requests take
notice, then accepts no more and lets running answers end, for ``DRAIN_SECONDS`` at most.
"""

import asyncio
import contextlib
import os
import signal
import socket
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence

import structlog
import uvicorn
from starlette.types import ASGIApp

from flowserve.control import listening
from flowserve.frontend import admin, api
from flowserve.frontend.access import AccessLog
from flowserve.frontend.generation import Generation
from flowserve.frontend.metrics import FrontendMetrics
from flowserve.frontend.planning import Encoder, Planner
from flowserve.frontend.routing import Router
from flowserve.frontend.upstream import Timeouts, Upstream
from flowserve.process import Unusable, configure_logs, control_token, read_config
from flowserve.source import model_directory
from flowserve.text import ChatTemplate, TextError, Tokenizer
from flowserve.wire import FrontendConfig

API_KEYS_VARIABLE = "XDEEPSERVE_API_KEYS"
NOTICE_SECONDS = 1.0
DRAIN_SECONDS = 20
KEEP_ALIVE_SECONDS = 65  # longer than the clients' own, so that they close first

log = structlog.get_logger()


class Frontend:
    """Everything behind the two ports; create it inside the event loop."""

    def __init__(
        self,
        config: FrontendConfig,
        token: str,
        tokenizer: Encoder,
        template: ChatTemplate | None,
        api_keys: Sequence[str] = (),
        timeouts: Timeouts | None = None,
    ) -> None:
        self.router = Router(config.deployment)
        self.draining = False
        self.upstream = Upstream(token, timeouts)
        self.metrics = FrontendMetrics(config.model_name)
        generation = Generation(self.router, self.upstream, self.metrics, clock=time.monotonic)
        planner = Planner(config.model_name, config.max_context_tokens, tokenizer, template)
        app = api.application(config, planner, generation, tokenizer, self.metrics, self.ready, api_keys)
        self.api: ASGIApp = AccessLog(app, self.metrics, time.monotonic)
        self.admin = admin.application(token, uuid.uuid4().hex, self.router, self.metrics, self.admitting)

    def ready(self) -> bool:
        """Whether a request that comes now can be served."""
        return self.router.ready and not self.draining

    def admitting(self) -> bool:
        """Whether requests should come here: a frontend with routes answers clearly even while no instance serves."""
        return self.router.epoch > 0 and not self.draining


class _Server(uvicorn.Server):
    """uvicorn, but signals are the process' own business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serving(app: ASGIApp, host: str, port: int) -> AsyncIterator[int]:
    """Serves an ASGI application while the context lasts, and drains it at its end. Gives the port; raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=512)
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await task


async def serve(config: FrontendConfig, token: str, text: tuple[Tokenizer, ChatTemplate | None]) -> None:
    """Runs a frontend until a signal ends it."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    frontend = Frontend(config, token, *text, api_keys=api_keys(os.environ.get(API_KEYS_VARIABLE)))
    async with (
        contextlib.aclosing(frontend.upstream),
        listening(frontend.admin, config.host, config.control_port),
        serving(frontend.api, config.host, config.api_port),
    ):
        log.info("listening", host=config.host, api_port=config.api_port, control_port=config.control_port)
        await stop.wait()
        frontend.draining = True
        log.info("draining", active=frontend.metrics.running)
        await asyncio.sleep(NOTICE_SECONDS)


def main() -> None:
    """Reads the configuration and the model's text side, and serves. Raises Unusable."""
    config = read_config(FrontendConfig)
    configure_logs(component="frontend", deployment=config.deployment)
    asyncio.run(serve(config, control_token(), _load_text(config.model_uri)))


def _load_text(uri: str) -> tuple[Tokenizer, ChatTemplate | None]:
    directory = model_directory(uri)
    try:
        tokenizer = Tokenizer(directory)
    except TextError as error:
        raise Unusable("CheckpointDamaged", str(error)) from error
    try:
        return tokenizer, ChatTemplate.load(directory)
    except TextError as error:
        log.warning("no chat", reason=str(error))
        return tokenizer, None


def api_keys(given: str | None) -> list[str]:
    """The keys in a list separated by commas; none without a list. Raises Unusable for a list without any key.

    Somebody wanted keys to be asked for: an empty Secret must not open the API to everybody.
    """
    keys = [key for key in map(str.strip, (given or "").split(",")) if key]
    if given is not None and not keys:
        raise Unusable("BadConfig", f"{API_KEYS_VARIABLE} holds no key: put keys, separated by commas, into the Secret")
    return keys
