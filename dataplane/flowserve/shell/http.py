"""The TE-shell's control port; see ``flowserve.wire`` for its routes."""

from __future__ import annotations

from aiohttp import web

from flowserve import control
from flowserve.exposition import CONTENT_TYPE
from flowserve.shell.digest import digest
from flowserve.shell.metrics import render, render_experts
from flowserve.shell.shell import Shell
from flowserve.wire import DispatchRequest, Membership, Roster
from flowserve.wire_experts import ExpertOrder, ExpertWatch


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

    @routes.put("/v1/experts/watch")
    async def watch(request: web.Request) -> web.Response:
        shell.watch_experts(await control.document(request, ExpertWatch))
        return control.reply(shell.status())

    @routes.get("/v1/experts/load")
    async def load(request: web.Request) -> web.Response:
        after = request.query.get("after", "0")
        if not (after.isascii() and after.isdigit() and len(after) <= 18):
            raise web.HTTPUnprocessableEntity(reason="after must be the sequence number of a slice")
        return control.reply(shell.experts.history(int(after)))

    @routes.get("/v1/experts/placement")
    async def placement(_request: web.Request) -> web.Response:
        return control.reply(await shell.experts.table())

    @routes.put("/v1/experts/placement")
    async def change(request: web.Request) -> web.Response:
        shell.move_experts(await control.document(request, ExpertOrder))
        return control.reply(shell.status())

    @routes.delete("/v1/experts/placement/{version:[0-9]{1,18}}")
    async def call_off(request: web.Request) -> web.Response:
        shell.call_off(int(request.match_info["version"]))
        return control.reply(shell.status())

    @routes.get("/metrics")
    async def metrics(_request: web.Request) -> web.Response:
        text = render(shell.status()) + render_experts(shell.status(), shell.experts.history(0))
        return web.Response(text=text, headers={"Content-Type": CONTENT_TYPE})

    app = control.application(token, lambda: shell.ready)
    app.add_routes(routes)
    return app
