"""`xdeepserve cluster`: exit codes and words, without a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from xdeepserve_cluster.cli import app
from xdeepserve_cluster.controlplane import ClusterSpec
from xdeepserve_cluster.controlplane.components import COMPONENTS, PORT_NAMES
from xdeepserve_cluster.controlplane.layout import Layout
from xdeepserve_cluster.controlplane.state import ClusterState, save_state


@pytest.fixture
def dead_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """A cluster all of whose processes are gone."""
    monkeypatch.setenv("XDEEPSERVE_STATE_DIR", str(tmp_path))
    layout = Layout(tmp_path, "demo")
    layout.log("etcd").parent.mkdir(parents=True)
    layout.log("etcd").write_text("one\ntwo\n")
    save_state(layout, ClusterState(spec=ClusterSpec(), ports=dict.fromkeys(PORT_NAMES, 1)))
    return layout


@pytest.mark.parametrize("command", [["status"], ["kubeconfig"], ["logs", "etcd"]])
def test_without_a_cluster_the_way_to_one_is_named(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDEEPSERVE_STATE_DIR", str(tmp_path))
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert f"error: there is no cluster 'demo' in {tmp_path}: run 'xdeepserve cluster up'" in result.output


def test_down_of_nothing_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDEEPSERVE_STATE_DIR", str(tmp_path))
    result = CliRunner().invoke(app, ["down"])
    assert result.exit_code == 0
    assert "there is no cluster demo" in result.output


def test_the_status_of_a_dead_cluster(dead_cluster: Layout) -> None:
    table = CliRunner().invoke(app, ["status"])
    assert table.exit_code == 1
    lines = table.stdout.splitlines()
    assert lines[1].split() == ["COMPONENT", "STATE", "PID", "PORT", "MEMORY", "LOG"]
    assert lines[2].split() == ["etcd", "dead", "-", "1", "-", str(dead_cluster.log("etcd"))]
    document = json.loads(CliRunner().invoke(app, ["status", "-o", "json"]).stdout)
    assert document["ready"] is False
    assert document["kubeconfig"] == str(dead_cluster.kubeconfig)
    assert [(part["name"], part["state"]) for part in document["components"]] == [(name, "dead") for name in COMPONENTS]


def test_an_unknown_form_of_output_is_refused(dead_cluster: Layout) -> None:
    assert CliRunner().invoke(app, ["status", "-o", "xml"]).exit_code == 2


def test_logs(dead_cluster: Layout) -> None:
    assert CliRunner().invoke(app, ["logs", "etcd"]).stdout == "one\ntwo\n"
    unknown = CliRunner().invoke(app, ["logs", "../cluster.json"])
    assert unknown.exit_code == 1
    assert "choose one of etcd, kube-apiserver" in unknown.output
    never_started = CliRunner().invoke(app, ["logs", "agent"])
    assert "agent has no log" in never_started.output


def test_down_removes_a_dead_cluster(dead_cluster: Layout) -> None:
    assert CliRunner().invoke(app, ["down"]).exit_code == 0
    assert not dead_cluster.directory.exists()
