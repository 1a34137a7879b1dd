"""Building with a fake Go: what is built, resumed, reported, and by how many at once."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from xdeepserve_cluster.binaries.build import build
from xdeepserve_cluster.binaries.cache import cached_path
from xdeepserve_cluster.binaries.catalog import TOOLS
from xdeepserve_cluster.errors import ClusterError
from xdeepserve_cluster.locks import exclusive
from xdeepserve_cluster.progress import Progress

from .machine import Machine

ETCD, HELM = TOOLS["etcd"], TOOLS["helm"]
# `go env GOVERSION`, or `go build -v -ldflags FLAGS -o TARGET PACKAGE`, written down in the file `calls`.
GO = """
if [ "$1" = env ]; then echo go1.27.0; exit; fi
echo "$7" >> "{root}/calls"
echo "go: downloading example.com v1" >&2
echo example.com >&2
{then}
echo "$4 in $(pwd) with $CGO_ENABLED $GOFLAGS $GOTOOLCHAIN $GOWORK" > "$6"
"""


def fake_go(machine: Machine, then: str = "") -> None:
    machine.script("path/go", GO.format(root=machine.root, then=then))


def calls(machine: Machine) -> list[str]:
    return (machine.root / "calls").read_text().split()


def test_a_built_command_has_its_version_and_nobodys_settings(machine: Machine) -> None:
    fake_go(machine)
    build([HELM], machine.environ | {"GOFLAGS": "-mod=mod", "CGO_ENABLED": "1"}, machine.progress)
    assert cached_path(HELM, machine.environ).read_text() == (
        "-s -w -X helm.sh/helm/v3/internal/version.version=v3.22.0"
        " -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=34"
        f" in {Path(__file__).parents[3] / 'cluster/modules/helm'}"
        " with 0 -mod=readonly -trimpath -buildvcs=false local off\n"
    )
    assert "building helm 3.22.0 (1 of 1)" in machine.printed.getvalue()


def test_an_interrupted_build_goes_on_with_what_is_missing(machine: Machine) -> None:
    fake_go(machine, then=f'[ "$7" = {HELM.package} ] && exit 1')
    with pytest.raises(ClusterError, match="building helm failed"):
        build([ETCD, HELM], machine.environ, machine.progress)
    assert not cached_path(HELM, machine.environ).exists()
    fake_go(machine)
    build([ETCD, HELM], machine.environ, machine.progress)
    assert calls(machine) == [ETCD.package, HELM.package, HELM.package]


def test_a_failure_brings_gos_own_words_and_a_way_out(machine: Machine) -> None:
    fake_go(machine, then='echo "dial tcp: no route to host" >&2; exit 1')
    with pytest.raises(ClusterError, match=r"no route to host[\s\S]*GOPROXY[\s\S]*KUBEBUILDER_ASSETS"):
        build([ETCD], machine.environ, machine.progress)


def test_a_long_step_says_what_it_is_at(machine: Machine) -> None:
    fake_go(machine, then="sleep 0.1")
    build([ETCD], machine.environ, machine.progress)
    assert "building etcd 3.6.16 (1 of 1) (1 packages compiled) …" in machine.printed.getvalue()


class Waiting(Progress):
    """Shows when a builder starts to wait."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.waits = threading.Event()

    def note(self, text: str) -> None:
        assert text == f"waiting for process {os.getpid()}, which is building the cluster's binaries"
        self.waits.set()


def test_a_second_builder_waits_and_finds_the_work_done(machine: Machine) -> None:
    fake_go(machine)
    progress = Waiting()
    second = threading.Thread(target=build, args=([ETCD], machine.environ, progress))
    with exclusive(machine.root / "home/.cache/xdeepserve/bin/.lock", pytest.fail):
        second.start()
        assert progress.waits.wait(10)
        target = cached_path(ETCD, machine.environ)
        target.parent.mkdir()
        target.write_text("built by the first")
    second.join(10)
    assert target.read_text() == "built by the first"
    assert not (machine.root / "calls").exists()
