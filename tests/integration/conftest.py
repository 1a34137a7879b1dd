"""Real control planes for the tests: one without and one with emulated servers, each started at its first use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from xdeepserve_cluster.controlplane import Cluster, ClusterSpec, down, up
from xdeepserve_cluster.progress import Progress


@pytest.fixture(scope="session", autouse=True)
def kubectl_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """kubectl leaves nothing in the home directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECACHEDIR", str(tmp_path_factory.mktemp("kubectl")))
        yield


@contextmanager
def running(spec: ClusterSpec, root: Path) -> Iterator[Cluster]:
    """A cluster of its own name and directory, gone afterwards whatever happens inside."""
    try:
        yield up(spec, root=root, progress=Progress())
    finally:
        down(spec.name, root=root)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane without any node."""
    spec = ClusterSpec(name=f"plain-{os.getpid()}", agent=False)
    with running(spec, tmp_path_factory.mktemp("clusters")) as plain:
        yield plain


@pytest.fixture(scope="session")
def emulated_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane and the servers of one small SuperPod: 2 x 910B, 4 x 910C."""
    spec = ClusterSpec(name=f"emulated-{os.getpid()}")
    with running(spec, tmp_path_factory.mktemp("clusters")) as emulated:
        yield emulated
