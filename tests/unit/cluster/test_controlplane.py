"""The parts of a control plane that need no process: names, ports, files, certificates, command lines."""

from __future__ import annotations

import base64
import json
import os
import socket
import stat
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from pydantic import ValidationError

from xdeepserve_cluster.controlplane import ClusterSpec, down, get, specify, up
from xdeepserve_cluster.controlplane.components import COMPONENTS, PORT_NAMES, components
from xdeepserve_cluster.controlplane.kubeconfig import kubeconfig
from xdeepserve_cluster.controlplane.layout import Layout
from xdeepserve_cluster.controlplane.pki import ensure_pki
from xdeepserve_cluster.controlplane.ports import FIRST, LAST, choose_ports, is_free
from xdeepserve_cluster.controlplane.state import ClusterState, load_state, save_state
from xdeepserve_cluster.errors import ClusterError
from xdeepserve_cluster.files import write_atomically
from xdeepserve_cluster.processes import ProcessId, identify

TOOLS = {name: Path("/tools") / name for name in COMPONENTS}
PORTS = {name: FIRST + number for number, name in enumerate(PORT_NAMES)}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path, "demo")
    layout.directory.mkdir()
    return layout


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a.b", "../home", "a/b", "x" * 33])
def test_a_name_that_is_no_plain_directory_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="is no cluster name"):
        down(name, root=tmp_path)


@pytest.mark.parametrize("servers", ["", "910B", "910B=", "910A=1", "910C=1,910C=2", "910B=1;910C=1", "910B=99999"])
def test_servers_that_cannot_be_read_are_refused(servers: str) -> None:
    with pytest.raises(ValidationError, match="910B=2,910C=4"):
        ClusterSpec(servers=servers)


def test_there_is_no_cluster_before_up(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="there is no cluster 'demo'"):
        get("demo", root=tmp_path)
    assert not down("demo", root=tmp_path)


def test_a_directory_of_somebody_else_is_neither_used_nor_removed(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xdeepserve_cluster.controlplane.bringup.find_or_build", lambda **_: TOOLS)
    (layout.directory / "thesis.tex").write_text("years of work")
    with pytest.raises(ClusterError, match=r"holds files that are no cluster's \(thesis.tex"):
        up(ClusterSpec(), root=layout.root)
    assert not down("demo", root=layout.root)
    assert (layout.directory / "thesis.tex").exists()


def test_ports_are_distinct_free_and_out_of_the_way() -> None:
    ports = choose_ports(PORT_NAMES)
    assert set(ports) == set(PORT_NAMES)
    assert len(set(ports.values())) == len(PORT_NAMES)
    assert all(FIRST <= port <= LAST for port in ports.values())


def test_a_port_in_use_is_passed_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free(server.getsockname()[1])
    taken = {LAST, FIRST + 1}
    ports = choose_ports(["a", "b"], free=lambda port: port not in taken, start=LAST)
    assert ports == {"a": FIRST, "b": FIRST + 2}


def test_no_port_left_is_an_error() -> None:
    with pytest.raises(OSError, match="fewer than 1 free ports"):
        choose_ports(["a"], free=lambda port: False)


def test_state_survives_writing_and_reading(layout: Layout) -> None:
    state = ClusterState(spec=ClusterSpec(), ports=PORTS, processes={"etcd": ProcessId(1, 2)})
    save_state(layout, state)
    assert load_state(layout) == state
    assert stat.S_IMODE(layout.state_file.stat().st_mode) == 0o600


def test_a_failed_write_leaves_the_old_text_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cluster.json"
    write_atomically(path, "old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, "new")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("cluster.json", "old")]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 2}', '{"version": 1, "ports": {"etcd": "x"}}'])
def test_a_damaged_state_file_is_explained(layout: Layout, text: str) -> None:
    layout.state_file.write_text(text)
    with pytest.raises(ClusterError, match=r"damaged or of another version.*cluster down --name demo"):
        load_state(layout)


def test_processes_of_an_earlier_boot_do_not_run() -> None:
    me = identify(os.getpid())
    assert me is not None
    state = ClusterState(spec=ClusterSpec(), ports=PORTS, processes={"etcd": me})
    assert state.running() == {"etcd": me}
    assert state.model_copy(update={"boot": "an earlier one"}).running() == {}


def test_certificates_are_made_once_and_keys_are_private(layout: Layout) -> None:
    ensure_pki(layout.pki)
    before = {path.name: path.read_bytes() for path in layout.pki.iterdir()}
    ensure_pki(layout.pki)
    assert {path.name: path.read_bytes() for path in layout.pki.iterdir()} == before
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in layout.pki.glob("*.key"))
    assert not layout.key("etcd-ca").exists()
    assert not layout.key("kubelet-ca").exists()


def test_only_the_right_authority_vouches_for_a_certificate(layout: Layout) -> None:
    ensure_pki(layout.pki)

    def load(name: str) -> x509.Certificate:
        return x509.load_pem_x509_certificate(layout.certificate(name).read_bytes())

    load("apiserver-etcd").verify_directly_issued_by(load("etcd-ca"))
    load("apiserver-kubelet").verify_directly_issued_by(load("kubelet-ca"))
    for outsider in ("admin", "apiserver", "agent"):
        load(outsider).verify_directly_issued_by(load("ca"))
        for circle in ("etcd-ca", "kubelet-ca"):
            with pytest.raises(ValueError, match="Issuer certificate subject"):
                load(outsider).verify_directly_issued_by(load(circle))


def test_a_kubeconfig_stands_on_its_own(layout: Layout) -> None:
    ensure_pki(layout.pki)
    document = yaml.safe_load(kubeconfig(layout, "https://127.0.0.1:1", "admin", inside=True))
    assert document["current-context"] == document["contexts"][0]["name"] == "xdeepserve-demo"
    user = document["users"][0]["user"]
    assert base64.b64decode(user["client-certificate-data"]) == layout.certificate("admin").read_bytes()
    assert document["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"


def test_a_components_kubeconfig_names_files_and_holds_no_key(layout: Layout) -> None:
    ensure_pki(layout.pki)
    document = yaml.safe_load(kubeconfig(layout, "https://127.0.0.1:1", "agent", inside=False))
    files = {**document["users"][0]["user"], **document["clusters"][0]["cluster"]}
    assert files == {
        "client-certificate": str(layout.certificate("agent")),
        "client-key": str(layout.key("agent")),
        "certificate-authority": str(layout.certificate("ca")),
        "server": "https://127.0.0.1:1",
    }
    assert all(Path(files[one]).is_absolute() for one in files if one != "server")


def test_every_listener_is_on_loopback_and_asks_for_certificates(layout: Layout) -> None:
    plan = {component.name: component.argv for component in components(ClusterSpec(), layout, PORTS, TOOLS)}
    assert tuple(plan) == COMPONENTS
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        assert "--bind-address=127.0.0.1" in plan[name]
        assert f"--secure-port={PORTS[name]}" in plan[name]
    assert f"--listen-client-urls=https://127.0.0.1:{PORTS['etcd']}" in plan["etcd"]
    assert {"--client-cert-auth=true", "--peer-client-cert-auth=true"} <= set(plan["etcd"])
    assert f"--client-ca={layout.certificate('kubelet-ca')}" in plan["agent"]


def test_a_cluster_without_agent_has_none(layout: Layout) -> None:
    names = [component.name for component in components(ClusterSpec(agent=False), layout, PORTS, TOOLS)]
    assert "agent" not in names


def test_clusters_of_one_name_share_no_memory(tmp_path: Path) -> None:
    one, other = Layout(tmp_path / "a", "demo"), Layout(tmp_path / "b", "demo")
    assert one.shared_memory.name.startswith("xds-demo-")
    assert one.shared_memory != other.shared_memory


def test_the_state_file_can_be_read_by_others(layout: Layout) -> None:
    save_state(layout, ClusterState(spec=ClusterSpec(), ports=PORTS, processes={"etcd": ProcessId(1, 2)}))
    document = json.loads(layout.state_file.read_text())
    assert document["processes"] == {"etcd": [1, 2]}
    assert document["ports"]["etcd"] == PORTS["etcd"]


def test_what_is_not_given_stays_as_it_is(layout: Layout) -> None:
    assert specify("demo", {}, layout.root) == ClusterSpec()
    save_state(layout, ClusterState(spec=ClusterSpec(superpod="pod-b", models=Path("/m")), ports=PORTS))
    assert specify("demo", {"agent": False}, layout.root) == ClusterSpec(
        superpod="pod-b", models=Path("/m"), agent=False
    )
    with pytest.raises(ClusterError, match="servers is 'many': must be CHIP=NUMBER"):
        specify("demo", {"servers": "many"}, layout.root)
