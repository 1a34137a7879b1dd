"""The API port: OpenAI's routes, health and metrics.

Order of checks for a POST: API key (before a byte of the body is read), size of the body (while it is read), its
JSON and types, model, parameters, length. Every error, unknown routes included, has OpenAI's shape.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

from fastapi import APIRouter, Depends, FastAPI, Request
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, PlainTextResponse, Response

from flowserve.control import HEALTH, READY, authorized
from flowserve.exposition import CONTENT_TYPE
from flowserve.frontend import errors
from flowserve.frontend.answer import ClientGone, EventStream, lines, until_disconnected
from flowserve.frontend.documents import ChatDocument, CompletionDocument, GenerationDocument
from flowserve.frontend.errors import RequestError
from flowserve.frontend.generation import Generation
from flowserve.frontend.job import Job
from flowserve.frontend.logprobs import Vocabulary
from flowserve.frontend.metrics import FrontendMetrics
from flowserve.frontend.planning import Planner
from flowserve.frontend.shapes import ChatShape, CompletionShape, Json, Shape
from flowserve.wire import FrontendConfig

BODY_SECONDS = 30.0
Kind = TypeVar("Kind", bound=BaseModel)


def application(
    config: FrontendConfig,
    planner: Planner,
    generation: Generation,
    vocabulary: Vocabulary,
    metrics: FrontendMetrics,
    ready: Callable[[], bool],
    api_keys: Sequence[str] = (),
) -> FastAPI:
    """The ASGI application; ``api_keys`` empty means that none is asked for."""
    router = APIRouter(dependencies=[Depends(_key_check(api_keys))])
    model: Json = {
        "id": config.model_name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "xdeepserve",
        "max_model_len": config.max_context_tokens,
    }

    @router.get("/v1/models")
    async def models() -> JSONResponse:
        return JSONResponse({"object": "list", "data": [model]})

    @router.get("/v1/models/{name:path}")
    async def model_by_name(name: str) -> JSONResponse:
        if name != config.model_name:
            raise errors.unknown_model(name, config.model_name)
        return JSONResponse(model)

    @router.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        document = await _document(request, ChatDocument, config.max_body_bytes)
        job = await planner.chat(request.state.request_id, document)
        return await answer(request, document, job, ChatShape)

    @router.post("/v1/completions")
    async def completions(request: Request) -> Response:
        document = await _document(request, CompletionDocument, config.max_body_bytes)
        job = await planner.completion(request.state.request_id, document)
        return await answer(request, document, job, CompletionShape)

    async def answer(request: Request, document: GenerationDocument, job: Job, kind: type[Shape]) -> Response:
        created, token_ids = int(time.time()), bool(document.return_token_ids)
        shape = kind(job, config.model_name, created, vocabulary, return_token_ids=token_ids)
        pieces = generation.pieces(job, whole=not document.stream)
        if document.stream:
            return EventStream(lines(pieces, shape, include_usage=document.include_usage))

        async def whole() -> Json:
            async with aclosing(pieces):
                return shape.whole([piece async for piece in pieces])

        return JSONResponse(await until_disconnected(request.receive, whole()))

    app = FastAPI(openapi_url=None, redirect_slashes=False)
    app.include_router(router)
    _add_health(app, metrics, ready)
    _add_error_handlers(app)
    return app


def _key_check(api_keys: Sequence[str]) -> Callable[[Request], Awaitable[None]]:
    async def check(request: Request) -> None:
        header = request.headers.get("authorization")
        # All keys are compared, whichever fits: time must not tell which one.
        if api_keys and not sum([authorized(header, key) for key in api_keys]):
            raise errors.invalid_key()

    return check


async def _document(request: Request, kind: type[Kind], limit: int) -> Kind:
    try:
        return kind.model_validate_json(await _body(request, limit))
    except ValidationError as error:
        raise errors.invalid_document(error) from None


async def _body(request: Request, limit: int) -> bytes:
    """The body, refused as soon as it is known to be longer than ``limit``.

    A moderate excess is read and thrown away first: a client that is still writing would not see the answer.
    """
    body, size = bytearray(), int(request.headers.get("content-length", 0))
    if size > 4 * limit:
        raise errors.body_too_large(limit)
    received = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                received += len(chunk)
                if received > 4 * limit:
                    break
                if received <= limit:
                    body += chunk
    except TimeoutError:
        raise errors.body_too_slow(BODY_SECONDS) from None
    if received > limit:
        raise errors.body_too_large(limit)
    return bytes(body)


def _add_health(app: FastAPI, metrics: FrontendMetrics, ready: Callable[[], bool]) -> None:
    @app.get(HEALTH)
    async def health() -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    @app.get(READY)
    async def readiness() -> PlainTextResponse:
        return PlainTextResponse("ready\n") if ready() else PlainTextResponse("not ready\n", status_code=503)

    @app.get("/metrics")
    async def metrics_page() -> Response:
        return Response(metrics.render(), headers={"content-type": CONTENT_TYPE})


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(RequestError)
    async def request_error(_request: Request, error: RequestError) -> JSONResponse:
        return JSONResponse(error.document(), error.status, error.headers())

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> JSONResponse:
        """Routing errors: 404 for an unknown path, 405 for a wrong method."""
        message = f"{error.detail}: {request.method} {request.url.path[:256]}"
        code = {404: "unknown_url", 405: "method_not_allowed"}.get(error.status_code)
        document = RequestError(error.status_code, message, code=code).document()
        return JSONResponse(document, error.status_code, error.headers)

    @app.exception_handler(ClientGone)
    @app.exception_handler(ClientDisconnect)
    async def gone(_request: Request, _error: Exception) -> Response:
        """The client left before its answer began, or within its own body."""
        return Response(status_code=499)  # nobody reads it; the log does

    @app.exception_handler(Exception)
    async def defect(_request: Request, _error: Exception) -> JSONResponse:
        return JSONResponse(errors.internal("Internal error; the server's log has the reason.").document(), 500)
