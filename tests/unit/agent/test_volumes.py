"""Volumes become directories."""

from __future__ import annotations

import base64
from pathlib import Path, PurePosixPath

import pytest

from xdeepserve_cluster.agent import volumes
from xdeepserve_cluster.agent.podspec import ConfigError, Objects
from xdeepserve_cluster.agent.volumes import TokenRequest
from xdeepserve_operator.runtime.kube import Object

OBJECTS: Objects = {
    ("ConfigMap", "cm"): {"data": {"a": "1", "b": "2"}, "binaryData": {"c": base64.b64encode(b"\xff").decode()}},
    ("Secret", "sec"): {"data": {"token": base64.b64encode(b"s3cret").decode()}},
    ("ConfigMap", "gone"): None,
}
TOKENS = {TokenRequest("", 3607): "the-token"}
POD: Object = {"metadata": {"name": "p", "namespace": "team"}, "spec": {}}


def content(volume: Object) -> dict[str, bytes]:
    found = volumes.files({"name": "v", **volume}, POD, OBJECTS, TOKENS)
    return {str(path): data for path, data in found.items()}


def test_config_maps_and_secrets_are_files() -> None:
    assert content({"configMap": {"name": "cm"}}) == {"a": b"1", "b": b"2", "c": b"\xff"}
    assert content({"configMap": {"name": "cm", "items": [{"key": "b", "path": "x/y"}]}}) == {"x/y": b"2"}
    assert content({"secret": {"secretName": "sec"}}) == {"token": b"s3cret"}
    assert content({"configMap": {"name": "gone", "optional": True}}) == {}
    assert content({"emptyDir": {}}) == {}


def test_a_projected_volume_joins_its_sources() -> None:
    """What the API server itself adds to every pod with a service account."""
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
        {"configMap": {"name": "cm", "items": [{"key": "a", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        {"secret": {"name": "sec", "items": [{"key": "token", "path": "other"}]}},
    ]
    volume: Object = {"name": "v", "projected": {"sources": sources}}
    expected = {"token": b"the-token", "ca.crt": b"1", "namespace": b"team", "other": b"s3cret"}
    assert content(volume) == expected
    assert volumes.token_files(volume, TOKENS) == {PurePosixPath("token"): b"the-token"}
    pod = {"spec": {"volumes": [volume]}}
    assert volumes.token_requests(pod) == {TokenRequest("", 3607)}
    assert volumes.references(pod) == {("ConfigMap", "cm"), ("Secret", "sec")}


@pytest.mark.parametrize(
    ("volume", "problem"),
    [
        ({"configMap": {"name": "gone"}}, "ConfigMap 'gone' was not found"),
        ({"secret": {"secretName": "sec", "items": [{"key": "k", "path": "p"}]}}, "Secret 'sec' has no key 'k'"),
        ({"nfs": {"server": "x"}}, "volume v: nfs is not supported"),
        ({"projected": {"sources": [{"clusterTrustBundle": {}}]}}, "clusterTrustBundle is not supported"),
    ],
)
def test_what_cannot_be_set_up_says_why(volume: Object, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        content(volume)


def test_written_files_are_private_and_replaced(tmp_path: Path) -> None:
    volumes.write(tmp_path / "v", {PurePosixPath("x/token"): b"old"})
    volumes.write(tmp_path / "v", {PurePosixPath("x/token"): b"new"})
    file = tmp_path / "v" / "x" / "token"
    assert file.read_bytes() == b"new"
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("path", ["../escape", "/etc/passwd", "a/../../b"])
def test_no_path_leads_out_of_a_volume(tmp_path: Path, path: str) -> None:
    with pytest.raises(ConfigError, match="leads out"):
        volumes.write(tmp_path / "v", {PurePosixPath(path): b"x"})


def test_mounts_lead_to_their_directories(tmp_path: Path) -> None:
    pod = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "h", "hostPath": {"path": "/data"}}]}}
    container = {
        "name": "c",
        "volumeMounts": [
            {"name": "v", "mountPath": "/v", "subPath": "sub"},
            {"name": "h", "mountPath": "/h"},
        ],
    }
    found = {mount.path: mount.target for mount in volumes.mounts(container, pod, tmp_path)}
    assert found == {
        "/v": tmp_path / "volumes" / "v" / "sub",
        "/h": Path("/data"),
        "/dev/termination-log": tmp_path / "termination" / "c",
    }
