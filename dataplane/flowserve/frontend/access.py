"""The outermost layer of the API port: a request id, one log line and one count for each request.

The id is ours, goes to the client as ``x-request-id`` and is in every log line of the request. Bodies, queries
and headers are never logged.
"""

import uuid
from collections.abc import Callable

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flowserve.frontend.metrics import FrontendMetrics

QUIET = frozenset({"/health", "/health/ready", "/metrics"})  # asked for every second by probes
OTHER = "other"  # one metric label for all unknown paths: their number is the caller's choice

log = structlog.get_logger()


class AccessLog:
    """ASGI middleware. ``clock``: seconds, monotonic."""

    def __init__(self, app: ASGIApp, metrics: FrontendMetrics, clock: Callable[[], float]) -> None:
        self._app = app
        self._metrics = metrics
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        structlog.contextvars.bind_contextvars(request_id=request_id)
        started, status = self._clock(), 499  # unless a response starts, the client was gone

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
                if status in (408, 413):
                    headers.append((b"connection", b"close"))  # the rest of the body is not waited for
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            self._record(scope, status, self._clock() - started)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", OTHER)
        self._metrics.answered(route, status)
        if route not in QUIET:
            log.info("request", method=scope["method"], route=route, status=status, seconds=round(seconds, 4))
