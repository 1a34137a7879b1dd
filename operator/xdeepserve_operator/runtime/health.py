"""HTTP for probes and metrics: /healthz (shows progress), /readyz (caches are full), /metrics.

Both replicas of an operator are ready, leader or not: readiness says that the caches are full, so a rolling update
goes on while only one of them works.
"""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from xdeepserve_operator.runtime.metrics import REGISTRY

STUCK_SECONDS = 90.0


async def serve(
    host: str, port: int, *, progress_age: Callable[[], float], synced: Callable[[], bool]
) -> web.AppRunner:
    """Starts listening; the caller cleans the runner up."""

    async def healthz(_request: web.Request) -> web.Response:
        age = progress_age()
        if age < STUCK_SECONDS:
            return web.Response(text="ok\n")
        return web.Response(status=503, text=f"no reconciliation finished for {age:.0f} s while some are due\n")

    async def readyz(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n") if synced() else web.Response(status=503, text="caches are filling\n")

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(REGISTRY), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner
