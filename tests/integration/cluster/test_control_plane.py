"""A real control plane: up, up again, broken and repaired, down without a trace."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from xdeepserve_cluster import processes
from xdeepserve_cluster.controlplane import Cluster, ClusterSpec, down, status, up
from xdeepserve_cluster.controlplane.layout import MARKER
from xdeepserve_cluster.errors import ClusterError
from xdeepserve_cluster.progress import Progress

NAME = f"life-{os.getpid()}"
SPEC = ClusterSpec(name=NAME, agent=False)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "state"
    down(NAME, root=tmp_path / "state")


def kubectl(cluster: Cluster, *arguments: str) -> str:
    command = [str(cluster.tools / "kubectl"), "--kubeconfig", str(cluster.kubeconfig), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout


def pids(root: Path) -> dict[str, int | None]:
    return {component.name: component.pid for component in status(NAME, root=root).components}


def test_life_of_a_cluster(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = up(SPEC, root=root, progress=Progress())
    printed = capsys.readouterr().err
    assert "starting etcd, kube-apiserver" in printed
    assert "starting kube-controller-manager, kube-scheduler" in printed
    first = pids(root)
    assert status(NAME, root=root).ready
    assert json.loads(kubectl(cluster, "version", "-o", "json"))["serverVersion"]["gitVersion"] == "v1.34.4"
    kubectl(cluster, "create", "configmap", "kept", "--from-literal=a=b")

    up(SPEC, root=root)
    assert pids(root) == first

    for name in ("kube-apiserver", "kube-scheduler"):
        os.kill(first[name] or 0, signal.SIGKILL)
    assert not status(NAME, root=root).ready
    repaired = up(SPEC, root=root)
    second = pids(root)
    assert {name for name in first if first[name] != second[name]} == {"kube-apiserver", "kube-scheduler"}
    assert repaired.server == cluster.server
    assert "kept" in kubectl(cluster, "get", "configmaps", "-o", "name")

    assert down(NAME, root=root)
    assert not cluster.directory.exists()
    assert processes.marked(MARKER, str(cluster.directory)) == []
    assert not down(NAME, root=root)


def test_a_dead_store_is_restarted_with_its_contents(root: Path) -> None:
    cluster = up(SPEC, root=root)
    kubectl(cluster, "create", "configmap", "kept")
    first = pids(root)
    os.kill(first["etcd"] or 0, signal.SIGKILL)
    up(SPEC, root=root)
    second = pids(root)
    assert {name for name in first if first[name] != second[name]} == {"etcd"}
    assert "kept" in kubectl(cluster, "get", "configmaps", "-o", "name")


def test_processes_that_are_written_down_nowhere_are_known_by_their_mark(root: Path) -> None:
    cluster = up(SPEC, root=root)
    first = pids(root)
    state_file = cluster.directory / "cluster.json"
    state = json.loads(state_file.read_text())
    state_file.write_text(json.dumps(state | {"processes": {}}))
    up(SPEC, root=root)
    assert pids(root) == first

    state_file.write_text("{ damaged")
    with pytest.raises(ClusterError, match="damaged or of another version"):
        up(SPEC, root=root)
    assert down(NAME, root=root)
    assert processes.marked(MARKER, str(cluster.directory)) == []
    assert not cluster.directory.exists()


POD = """
apiVersion: v1
kind: Pod
metadata: {name: stubborn}
spec:
  containers:
  - {name: main, image: none, command: [sh, -c, "trap 'sleep 60 &' TERM; while :; do sleep 1; done"]}
"""


def test_down_ends_the_pods_of_a_killed_agent(root: Path, tmp_path: Path) -> None:
    spec = ClusterSpec(name=NAME, servers="910B=1")
    cluster = up(spec, root=root)
    (tmp_path / "pod.yaml").write_text(POD)
    kubectl(cluster, "create", "-f", str(tmp_path / "pod.yaml"))
    kubectl(cluster, "wait", "--for=condition=Ready", "pod/stubborn", "--timeout=20s")
    os.kill(pids(root)["agent"] or 0, signal.SIGKILL)
    up(spec, root=root)
    kubectl(cluster, "wait", "--for=condition=Ready", "pod/stubborn", "--timeout=20s")
    os.kill(pids(root)["agent"] or 0, signal.SIGKILL)
    control_plane = len(pids(root)) - 1
    assert len(processes.marked(MARKER, str(cluster.directory))) > control_plane
    down(NAME, root=root)
    assert processes.marked(MARKER, str(cluster.directory)) == []
    assert not list(Path("/dev/shm").glob(f"xds-{NAME}-*"))


def test_a_failing_component_is_reported_with_its_log_and_leaves_nothing_running(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "assets" / "kube-apiserver"
    broken.parent.mkdir()
    broken.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo Kubernetes v1.34.4; exit; }\necho no such luck\nexit 7\n'
    )
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{os.environ.get('KUBEBUILDER_ASSETS', '')}:{os.environ['PATH']}")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(broken.parent))
    with pytest.raises(ClusterError, match=r"kube-apiserver exited with status 7[\s\S]*no such luck"):
        up(SPEC, root=root)
    assert processes.marked(MARKER, str(root / NAME)) == []


def test_other_settings_under_the_same_name_are_refused(cluster: Cluster) -> None:
    other = cluster.spec.model_copy(update={"superpod": "pod-b"})
    with pytest.raises(ClusterError, match="superpod pod-a, not pod-b"):
        up(other, root=cluster.directory.parent)


def test_no_listener_answers_without_a_certificate(cluster: Cluster) -> None:
    """Loopback is shared with every user of the machine, and with every pod."""
    anybody = ssl.create_default_context()
    anybody.check_hostname = False
    anybody.verify_mode = ssl.CERT_NONE
    ports = json.loads((cluster.directory / "cluster.json").read_text())["ports"]
    with pytest.raises((urllib.error.URLError, OSError)):
        urllib.request.urlopen(f"https://127.0.0.1:{ports['etcd']}/version", context=anybody, timeout=5)
    for path, port in (("/api/v1/secrets", "kube-apiserver"), ("/metrics", "kube-scheduler")):
        with pytest.raises(urllib.error.HTTPError, match=r"40[13]") as refused:
            urllib.request.urlopen(f"https://127.0.0.1:{ports[port]}{path}", context=anybody, timeout=5)
        refused.value.close()
