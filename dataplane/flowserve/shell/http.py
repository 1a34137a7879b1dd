"""The TE-shell's control port; see ``flowserve.wire`` for its routes."""

from __future__ import annotations

from aiohttp import web

from flowserve import control
from flowserve.exposition import CONTENT_TYPE
from flowserve.shell.digest import digest
from flowserve.shell.metrics import render
from flowserve.shell.shell import Shell
from flowserve.wire import DispatchRequest, Membership, Roster


def application(token: str, shell: Shell) -> web.Application:
    routes = web.RouteTableDef()

    @routes.get("/v1/status")
    async def get_status(request: web.Request) -> web.Response:
        status = shell.status()
        etag = {"ETag": digest(status)}
        if request.headers.get("If-None-Match") == etag["ETag"]:
            return web.Response(status=304, headers=etag)
        answer = control.reply(status)
        answer.headers.update(etag)
        return answer

    @routes.put("/v1/roster")
    async def put_roster(request: web.Request) -> web.Response:
        shell.follow(await control.document(request, Roster))
        return control.reply(shell.status())

    @routes.put("/v1/membership")
    async def put_membership(request: web.Request) -> web.Response:
        shell.spread(await control.document(request, Membership))
        return control.reply(shell.status())

    @routes.post("/v1/dispatch")
    async def dispatch(request: web.Request) -> web.Response:
        await control.document(request, DispatchRequest)
        return control.reply(shell.dispatch())

    @routes.get("/metrics")
    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(text=render(shell.status()), headers={"Content-Type": CONTENT_TYPE})

    app = control.application(token, lambda: shell.ready)
    app.add_routes(routes)
    return app
