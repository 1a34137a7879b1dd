"""The kubelet's HTTPS endpoint, as far as `kubectl logs` needs it. Only a client with a certificate of ours gets in.

    GET /containerLogs/<namespace>/<pod>/<container>?follow&previous&tailLines&limitBytes

Following reads the file every 200 ms while somebody follows. Times are not recorded, so `timestamps` and `since...`
are refused, and so are exec, attach and port-forward: there is no container to enter.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

from aiohttp import web

from xdeepserve_cluster.agent.lifecycle import Running
from xdeepserve_cluster.agent.logs import BLOCK, offset_of_last_lines
from xdeepserve_cluster.agent.pod import PodWorker

FOLLOW_PERIOD_S = 0.2
UNSUPPORTED = ("exec", "attach", "portForward", "run")
FindPod = Callable[[str, str], PodWorker | None]


class LogsServer:
    """Serves the logs of the pods that `find(namespace, name)` knows."""

    def __init__(self, find: FindPod) -> None:
        self._find = find
        application = web.Application()
        application.add_routes([web.get("/containerLogs/{namespace}/{pod}/{container}", self._logs)])
        application.add_routes([web.get("/healthz", _healthz)])
        application.add_routes([web.route("*", f"/{word}/{{rest:.*}}", _unsupported) for word in UNSUPPORTED])
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)

    async def start(self, port: int, context: ssl.SSLContext) -> None:
        """Listens on loopback. Raises OSError if the port is taken."""
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port, ssl_context=context).start()

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        words, query = request.match_info, request.query
        worker, container = self._find(words["namespace"], words["pod"]), words["container"]
        found = worker.logs(container) if worker else None
        if found is None:
            raise web.HTTPNotFound(text=f"there is no container {container} of a pod {words['pod']} here")
        logs, record = found
        if refused := sorted(word for word in query if word.startswith("since") or word == "timestamps"):
            raise web.HTTPBadRequest(text=f"{', '.join(refused)}: servers here do not record when a line was written")
        run = record.restarts - (1 if _flag(query, "previous") else 0)
        path = logs.path(run)
        if not path.is_file():
            raise web.HTTPBadRequest(text=f"container {container} of pod {words['pod']} has not written such a log")
        try:
            limit = int(query.get("limitBytes", 1 << 62))
            start = offset_of_last_lines(path, int(query["tailLines"])) if "tailLines" in query else 0
        except ValueError as error:
            raise web.HTTPBadRequest(text=f"tailLines and limitBytes must be numbers: {error}") from error

        def going_on() -> bool:
            running = isinstance(record.state, Running) and record.restarts == run
            return running and _flag(query, "follow") and request.transport is not None

        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        async for chunk in _read(path, start, going_on):
            await response.write(chunk[:limit])
            limit -= len(chunk)
            if limit <= 0:
                break
        return response


def server_context(certificate: Path, key: Path, client_authority: Path) -> ssl.SSLContext:
    """TLS that asks clients for a certificate signed by `client_authority`."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_authority)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(certificate, key)
    return context


async def _read(path: Path, start: int, going_on: Callable[[], bool]) -> AsyncIterator[bytes]:
    """A file's bytes from `start`, and what is added as long as `going_on()`."""
    with path.open("rb") as file:
        file.seek(start)
        while True:
            more = going_on()  # asked before reading, so that the last lines of a run are not missed
            while chunk := file.read(BLOCK):
                yield chunk
            if not more:
                return
            await asyncio.sleep(FOLLOW_PERIOD_S)


async def _healthz(_request: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _unsupported(request: web.Request) -> web.Response:
    what = request.path.split("/")[1]
    raise web.HTTPNotImplemented(text=f"{what} is not supported: pods of emulated servers are processes")


def _flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() in ("1", "true")
