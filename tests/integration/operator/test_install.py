"""`xdeepserve install --kubeconfig`: a cluster that somebody else made."""

import os
import shutil
from pathlib import Path

import pytest

from xdeepserve_cluster.controlplane import Cluster
from xdeepserve_cluster.progress import Progress
from xdeepserve_demo.errors import CommandFailed
from xdeepserve_demo.install import install
from xdeepserve_demo.tools import Tools

QUIET = Progress(quiet=True)


async def test_a_kubeconfig_is_all_that_it_takes(operated_cluster: Cluster, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    shutil.copyfile(operated_cluster.kubeconfig, kubeconfig)
    with Tools.borrowed(kubeconfig, QUIET) as tools:
        await install(tools)
        releases = await tools.helm("list", "--all-namespaces", "--short")
    assert {"xdeepserve", "xdeepserve-crds"} <= set(releases.split())
    assert os.listdir(tmp_path) == [kubeconfig.name]  # nothing is left beside it


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = pytest.raises(CommandFailed, match=r"nowhere/config: there is no such kubeconfig")
    with missing, Tools.borrowed(tmp_path / "nowhere/config", QUIET):
        pass
