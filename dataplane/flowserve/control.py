"""What the control ports of engines and TE-shells share: the token, the health routes, and the shape of refusals.

Every route but the two health routes asks for ``Authorization: Bearer <control token>``. A request that cannot be
carried out is answered by a ``Refusal``: 401 without the token, 409 for a document that contradicts what is known
(``epoch.Refused``), 413 for a body above the limit, 422 for one that is no valid document, 503 for ``Unavailable``.
A client that disconnects cancels its handler.
"""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError

from flowserve.epoch import Refused
from flowserve.process import describe
from flowserve.wire import Refusal

HEALTH = "/health"
READY = "/health/ready"
DOCUMENT_BYTES = 4 << 20  # a membership of 1024 ranks takes 1.5 MB at most

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
M = TypeVar("M", bound=BaseModel)


class Unavailable(Exception):
    """It cannot be done now, but may be later or elsewhere. HTTP 503."""


def authorized(header: str | None, token: str) -> bool:
    """Whether an ``Authorization`` header carries ``token``; takes the same time wherever they differ."""
    return hmac.compare_digest((header or "").encode(), f"Bearer {token}".encode())


def application(token: str, ready: Callable[[], bool], body_bytes: int = DOCUMENT_BYTES) -> web.Application:
    """An application that has the health routes and answers every other one only to callers with ``token``."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in (HEALTH, READY) and not authorized(request.headers.get("Authorization"), token):
            return reply(Refusal(error="the control token is missing or wrong"), 401)
        try:
            return await handler(request)
        except Refused as error:
            return reply(Refusal(error=str(error)), 409)
        except ValidationError as error:
            return reply(Refusal(error=describe(error)[:1024]), 422)
        except Unavailable as error:
            return reply(Refusal(error=str(error), retryable=True), 503)
        except web.HTTPException as error:
            return reply(Refusal(error=error.reason), error.status)

    async def health(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readiness(_request: web.Request) -> web.Response:
        return web.Response(text="ready\n") if ready() else web.Response(text="not ready\n", status=503)

    app = web.Application(middlewares=[guard], client_max_size=body_bytes)
    app.router.add_get(HEALTH, health)
    app.router.add_get(READY, readiness)
    return app


async def document(request: web.Request, kind: type[M]) -> M:
    """The request's body. Raises ValidationError, or HTTPRequestEntityTooLarge before it is read whole."""
    return kind.model_validate_json(await request.read())


def reply(body: BaseModel, status: int = 200) -> web.Response:
    return web.Response(body=body.model_dump_json().encode(), status=status, content_type="application/json")


@asynccontextmanager
async def listening(app: web.Application, host: str, port: int) -> AsyncIterator[None]:
    """Serves ``app`` while the context lasts. Raises OSError if the address cannot be had."""
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, reuse_address=True).start()
        yield
    finally:
        await runner.cleanup()
