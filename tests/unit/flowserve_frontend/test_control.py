"""The control port, readiness and the metrics page of a running frontend."""

import aiohttp
import pytest

from flowserve.frontend.server import api_keys
from flowserve.process import Unusable
from flowserve.wire import FrontendStatus, Routes
from tests.unit.flowserve_frontend.fakes import MODEL, TOKEN, World

BEARER = {"authorization": f"Bearer {TOKEN}"}


async def put_routes(session: aiohttp.ClientSession, routes: Routes) -> int:
    async with session.put("/v1/routes", data=routes.model_dump_json(), headers=BEARER) as response:
        return response.status


async def test_routes_and_status(world: World):
    newer = Routes(deployment="chat", epoch=9, targets=())
    async with aiohttp.ClientSession(world.control_url) as control:
        assert await put_routes(control, newer) == 200
        assert await put_routes(control, newer) == 200
        assert await put_routes(control, newer.model_copy(update={"epoch": 8})) == 409
        assert await put_routes(control, newer.model_copy(update={"targets": (world.prefill.target(),)})) == 409
        async with control.get("/v1/status", headers=BEARER) as response:
            status = FrontendStatus.model_validate_json(await response.read())
    assert (status.epoch, status.active) == (9, 0)


async def test_the_status_tells_latencies_and_who_found_no_instance(world: World, http: aiohttp.ClientSession):
    async def ask() -> int:
        async with http.post("/v1/completions", json={"model": MODEL, "prompt": "hi"}) as response:
            return response.status

    assert await ask() == 200
    world.route_to(world.prefill.target())
    assert await ask() == 503
    async with (
        aiohttp.ClientSession(world.control_url) as control,
        control.get("/v1/status", headers=BEARER) as response,
    ):
        status = FrontendStatus.model_validate_json(await response.read())
    assert (sum(status.first_token.counts), status.refused) == (1, 1)
    assert sum(status.per_token.counts) >= 1
    assert len(status.first_token.counts) == len(status.first_token.bounds) + 1


async def test_the_token_is_asked_for(world: World):
    async with aiohttp.ClientSession(world.control_url) as control:
        for path in ("/v1/status", "/metrics"):
            async with control.get(path) as response:
                assert response.status == 401
        async with control.put("/v1/routes", json={}, headers={"authorization": "Bearer wrong"}) as response:
            assert response.status == 401
        async with control.get("/health") as response:
            assert response.status == 200


async def test_clients_are_told_who_serves_and_probes_who_answers(world: World, http: aiohttp.ClientSession):
    async def ready() -> tuple[int, int]:
        async with http.get("/health/ready") as one, http.get(f"{world.control_url}/health/ready") as other:
            return one.status, other.status

    assert await ready() == (200, 200)
    world.route_to(world.decode.target())
    assert await ready() == (503, 200)
    world.route_to(world.prefill.target(), world.decode.target())
    world.frontend.draining = True
    assert await ready() == (503, 503)


async def test_requests_are_counted_by_route_and_status(http: aiohttp.ClientSession):
    for path in ("/v1/models", "/v1/models/other", "/a", "/b"):
        async with http.get(path) as response:
            assert len(response.headers["x-request-id"]) == 32
    async with http.post("/v1/completions", json={"model": MODEL, "prompt": "hi"}) as response:
        assert response.status == 200
    async with http.get("/metrics") as response:
        page = await response.text()
    count = f'xdeepserve:http_requests_total{{model_name="{MODEL}",route='
    assert f'{count}"/v1/models",status="200"}} 1' in page
    assert f'{count}"/v1/models/{{name:path}}",status="404"}} 1' in page
    assert f'{count}"other",status="404"}} 2' in page
    assert f'{count}"/v1/completions",status="200"}} 1' in page
    assert f'vllm:time_to_first_token_seconds_count{{model_name="{MODEL}"}} 1' in page


def test_a_list_without_keys_opens_nothing():
    assert api_keys(None) == []
    assert api_keys(" first, second ,") == ["first", "second"]
    for empty in ("", " , "):
        with pytest.raises(Unusable, match="holds no key"):
            api_keys(empty)
