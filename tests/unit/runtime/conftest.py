"""The API server of these tests and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from xdeepserve_operator.runtime.kube import KubeApi

from .api_server import ApiServer, serve


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
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server.url}}],
        "users": [{"name": "test", "user": {"token": "t"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    async with KubeApi.connect(path) as client:
        yield client
