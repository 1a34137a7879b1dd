"""The control port: routes in, status out. Only for callers with the control token, the health routes apart."""

from collections.abc import Callable

from aiohttp import web

from flowserve.control import application as control_application
from flowserve.control import document, reply
from flowserve.exposition import CONTENT_TYPE
from flowserve.frontend.metrics import FrontendMetrics, snapshot
from flowserve.frontend.routing import Router
from flowserve.wire import FrontendStatus, Routes


def application(
    token: str, incarnation: str, router: Router, metrics: FrontendMetrics, ready: Callable[[], bool]
) -> web.Application:
    """The aiohttp application of the control port."""

    def status() -> FrontendStatus:
        return FrontendStatus(
            incarnation=incarnation,
            epoch=router.epoch,
            active=metrics.running,
            refused=metrics.refused,
            first_token=snapshot(metrics.first_token),
            per_token=snapshot(metrics.per_token),
        )

    async def put_routes(request: web.Request) -> web.Response:
        router.replace(await document(request, Routes))
        return reply(status())

    async def get_status(_request: web.Request) -> web.Response:
        return reply(status())

    async def get_metrics(_request: web.Request) -> web.Response:
        return web.Response(text=metrics.render(), headers={"content-type": CONTENT_TYPE})

    app = control_application(token, ready)
    app.router.add_put("/v1/routes", put_routes)
    app.router.add_get("/v1/status", get_status)
    app.router.add_get("/metrics", get_metrics)
    return app
