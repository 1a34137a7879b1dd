"""The operator, installed by its charts, on the control plane with emulated servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from operator_site import SUPERPOD, Site, site

from xdeepserve_cluster.controlplane import Cluster
from xdeepserve_demo.install import install
from xdeepserve_demo.tools import Tools
from xdeepserve_operator.api.names import API_VERSION
from xdeepserve_operator.runtime.kube import KubeApi
from xdeepserve_operator.runtime.resources import SUPERPODS

POOLS = [
    {"name": "b910", "chip": "910B", "diesPerNode": 8, "planes": ["RoCE"]},
    {"name": "c910", "chip": "910C", "diesPerNode": 16, "planes": ["UB"]},
]


@pytest.fixture(scope="session")
def operated_cluster(emulated_cluster: Cluster) -> Cluster:
    """A cluster with the operator, and the SuperPod of its servers."""

    async def prepare() -> None:
        await install(Tools(emulated_cluster.tools, emulated_cluster.kubeconfig))
        body = {"apiVersion": API_VERSION, "kind": "SuperPod", "metadata": {"name": SUPERPOD}}
        async with KubeApi.connect(emulated_cluster.kubeconfig) as api:
            await api.create(SUPERPODS, body | {"spec": {"superpodId": "pod-a", "pools": POOLS}})

    asyncio.run(prepare())
    return emulated_cluster


@pytest_asyncio.fixture
async def here(operated_cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    """A namespace for one test."""
    async with site(operated_cluster, f"t{abs(hash(request.node.nodeid)) % 10**9}") as mine:
        yield mine


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(operated_cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    """A namespace for the tests of a module, under the strictest pod security standard there is."""
    name = request.module.__name__.rpartition(".")[2].replace("_", "-")
    async with site(operated_cluster, name, {"pod-security.kubernetes.io/enforce": "restricted"}) as mine:
        yield mine
