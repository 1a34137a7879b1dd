"""The engine's control port; see ``flowserve.wire`` for its routes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from aiohttp import web

from flowserve import control
from flowserve.engine.expert_plane import ExpertPlane
from flowserve.engine.iteration import Tally
from flowserve.engine.metrics import render
from flowserve.engine.prefill import Prefill
from flowserve.exposition import CONTENT_TYPE
from flowserve.transfer.fork import NoSuchPart, WeightDonor
from flowserve.transfer.tickets import NoTicket
from flowserve.wire import EngineStatus, Membership, PullRequest, Refusal
from flowserve.wire_experts import ExpertOrder
from flowserve.wire_fork import WeightPull


class Controlled(Protocol):
    """What the port needs of an engine."""

    @property
    def prefill(self) -> Prefill | None: ...

    def status(self) -> EngineStatus: ...

    @property
    def experts(self) -> ExpertPlane: ...

    @property
    def weights(self) -> WeightDonor: ...

    def offer(self, membership: Membership) -> None: ...


def application(token: str, model_name: str, tally: Tally, engine: Controlled) -> web.Application:
    routes = web.RouteTableDef()

    @routes.get("/v1/status")
    async def get_status(_request: web.Request) -> web.Response:
        return control.reply(engine.status())

    @routes.put("/v1/membership")
    async def put_membership(request: web.Request) -> web.Response:
        engine.offer(await control.document(request, Membership))
        return control.reply(engine.status())

    @routes.post("/v1/transfers/{ticket}/pull")
    async def pull(request: web.Request) -> web.Response:
        wish = await control.document(request, PullRequest)
        return transfer(lambda role: role.pull(request.match_info["ticket"], wish), 202)

    @routes.delete("/v1/transfers/{ticket}")
    async def drop(request: web.Request) -> web.Response:
        return transfer(lambda role: role.drop(request.match_info["ticket"]), 204)

    def transfer(act: Callable[[Prefill], None], success: int) -> web.Response:
        try:
            if (role := engine.prefill) is None:
                raise NoTicket("this engine has no tickets")
            act(role)
        except NoTicket as error:
            return control.reply(Refusal(error=str(error), retryable=True), 404)
        return web.Response(status=success)

    @routes.get("/v1/experts/load")
    async def load(_request: web.Request) -> web.Response:
        return control.reply(engine.experts.load())

    @routes.get("/v1/experts/placement")
    async def table(_request: web.Request) -> web.Response:
        return control.reply(engine.experts.table())

    @routes.put("/v1/experts/placement")
    async def change(request: web.Request) -> web.Response:
        engine.experts.offer(await control.document(request, ExpertOrder))
        return control.reply(engine.status())

    @routes.delete("/v1/experts/placement/{version:[0-9]{1,18}}")
    async def call_off(request: web.Request) -> web.Response:
        engine.experts.give_up(int(request.match_info["version"]))
        return control.reply(engine.status())

    @routes.get("/v1/weights")
    async def offer(_request: web.Request) -> web.Response:
        return given(lambda: control.reply(engine.weights.offer()))

    @routes.post("/v1/weights/pull")
    async def send(request: web.Request) -> web.Response:
        wish = await control.document(request, WeightPull)

        def begin() -> web.Response:
            engine.weights.send(wish)
            return web.Response(status=202)

        return given(begin)

    def given(act: Callable[[], web.Response]) -> web.Response:
        try:
            return act()
        except NoSuchPart as error:
            return control.reply(Refusal(error=str(error)), 404)

    @routes.get("/metrics")
    async def metrics(_request: web.Request) -> web.Response:
        text = render(model_name, engine.status(), tally)
        return web.Response(text=text, headers={"Content-Type": CONTENT_TYPE})

    app = control.application(token, lambda: engine.status().state == "Serving")
    app.add_routes(routes)
    return app
