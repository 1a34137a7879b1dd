"""The API server of these tests and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from xdeepserve_operator.runtime.kube import KubeApi

from .api_server import ApiServer, serve, write_kubeconfig


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    running = ApiServer()
    runner = await serve(running)
    yield running
    running.release()
    running.drop_watches()
    await runner.cleanup()


@pytest.fixture
async def api(server: ApiServer, tmp_path: Path) -> AsyncIterator[KubeApi]:
    async with KubeApi.connect(write_kubeconfig(tmp_path / "kubeconfig", server.url)) as client:
        yield client
