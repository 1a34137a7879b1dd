"""The emulated servers as a user of kubectl sees them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_kubectl import Kubectl

from xdeepserve_cluster.controlplane import Cluster

CRDS = Path(__file__).parents[3] / "crds"


@pytest.fixture(scope="module")
def kubectl(emulated_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """kubectl with a namespace of its own and the kinds that the servers know; they are gone afterwards."""
    kubectl = Kubectl(emulated_cluster, request.module.__name__.replace("_", "-"))
    kubectl("create", "namespace", kubectl.namespace)
    installed = kubectl("get", "crds", "-o", "name")
    ours = [name for name in ("faultinjections", "superpods") if f"/{name}." not in installed]
    for name in ours:
        kubectl("create", "-f", str(CRDS / f"{name}.yaml"))
        crd = f"crd/{name}.serving.xdeepserve.io"
        kubectl.until(crd, "jsonpath={.status.conditions}")  # until then it cannot wait for one of them
        kubectl.until(crd, "condition=Established")
    kubectl.until("serviceaccount/default", "create")
    yield kubectl
    kubectl("delete", "pods,faultinjections", "--all")
    kubectl("delete", "namespace", kubectl.namespace, "--wait=false")
    for name in ours:
        kubectl("delete", "-f", str(CRDS / f"{name}.yaml"))
