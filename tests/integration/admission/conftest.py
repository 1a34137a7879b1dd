"""The generated CRDs in a real API server, and a client that writes as strictly as kubectl does."""

import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from admission_samples import NAMESPACE

from xdeepserve_cluster.controlplane import Cluster
from xdeepserve_operator.api.names import API_VERSION
from xdeepserve_operator.api.v1alpha1.kinds import KINDS
from xdeepserve_operator.runtime.kube import ApiError, KubeApi

CRDS = Path(__file__).parents[3] / "crds"
PLURALS = {kind.kind: kind.plural for kind in KINDS}


@pytest.fixture(scope="session")
def kubectl(cluster: Cluster) -> Callable[..., str]:
    """Runs kubectl; returns its output, or fails the test with what it complains of."""

    def run(*arguments: str) -> str:
        command = [cluster.tools / "kubectl", "--kubeconfig", cluster.kubeconfig, *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def installed(kubectl: Callable[..., str], cluster: Cluster) -> Cluster:
    """The cluster with all CRDs established, by plain ``kubectl apply`` as a user would."""
    kubectl("apply", "-f", str(CRDS))
    kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(CRDS))
    kubectl("create", "namespace", NAMESPACE)
    return cluster


class Admission:
    """Writes objects with strict field validation; nothing is stored unless asked for."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    async def create(self, sample: dict[str, Any], *, keep: bool = False) -> dict[str, Any]:
        """What the API server would store, or stored. Raises ApiError."""
        return await self._send("POST", self._path(sample), sample, keep)

    async def update(self, sample: dict[str, Any]) -> dict[str, Any]:
        """What a replace of an object that was kept would store. Raises ApiError."""
        return await self._send("PUT", f"{self._path(sample)}/{sample['metadata']['name']}", sample, keep=False)

    async def delete(self, sample: dict[str, Any]) -> None:
        """Removes an object that was kept."""
        await self._api.request("DELETE", f"{self._path(sample)}/{sample['metadata']['name']}")

    async def refusal(self, sample: dict[str, Any], *, update: bool = False) -> str:
        """The API server's message; fails the test if it takes the object."""
        try:
            await (self.update(sample) if update else self.create(sample))
        except ApiError as error:
            return error.message
        pytest.fail("the API server took it")

    async def _send(self, method: str, path: str, sample: dict[str, Any], keep: bool) -> dict[str, Any]:
        query = {"fieldValidation": "Strict"} | ({} if keep else {"dryRun": "All"})
        answer: dict[str, Any] = await self._api.request(method, path, params=query, json=sample)
        return answer

    @staticmethod
    def _path(sample: dict[str, Any]) -> str:
        namespace = sample["metadata"].get("namespace")
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"/apis/{API_VERSION}{within}/{PLURALS[sample['kind']]}"


@pytest_asyncio.fixture
async def admission(installed: Cluster) -> AsyncIterator[Admission]:
    """A strict client of the cluster with CRDs."""
    async with KubeApi.connect(installed.kubeconfig) as api:
        yield Admission(api)
