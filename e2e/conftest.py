"""One cluster with a served model, for tests that break it and see it heal; each leaves it Ready."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from xdeepserve_cluster.controlplane import ClusterSpec
from xdeepserve_cluster.progress import Progress
from xdeepserve_demo.assets import models
from xdeepserve_demo.reference import Reference
from xdeepserve_demo.session import MODEL, Session, session


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Session]:
    """The quickstart, Ready."""
    spec = ClusterSpec(name=f"e2e-{os.getpid()}", models=models())
    async with session(spec, Progress(), root=tmp_path_factory.mktemp("clusters")) as current:
        await current.install()
        await current.apply()
        await current.endpoint()
        yield current


@pytest.fixture(scope="session")
def reference() -> Reference:
    """What a single process computes."""
    return Reference(models() / MODEL)
