"""Environment, command and paths of a container, by Kubernetes' rules."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdeepserve_cluster.agent.podspec import (
    ConfigError,
    Mount,
    Objects,
    environment,
    expand,
    field_value,
    launch,
    references,
    rewrite_paths,
)
from xdeepserve_operator.runtime.kube import Object

POD: Object = {
    "metadata": {
        "name": "web",
        "namespace": "team",
        "uid": "u1",
        "labels": {"app": "web", "tier": "x"},
        "annotations": {"huawei.com/AscendReal": "Ascend910-3"},
    },
    "spec": {"nodeName": "pod-a-910c-0", "serviceAccountName": "default"},
    "status": {"podIP": "127.16.0.9", "hostIP": "127.0.0.1"},
}
OBJECTS: Objects = {
    ("ConfigMap", "cm"): {"data": {"color": "blue", "size": "3"}},
    ("Secret", "sec"): {"data": {"token": base64.b64encode(b"s3cret").decode()}},
    ("ConfigMap", "gone"): None,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)-$(B)", "1-2"),
        ("$(MISSING) stays", "$(MISSING) stays"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A ${A} $", "$A ${A} $"),
        ("$(A", "$(A"),
        ("$()", "$()"),
        ("", ""),
        ("$$$$", "$$"),
    ],
)
def test_expansion(text: str, expected: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expected


@given(st.text())
def test_doubled_dollars_shield_any_text(text: str) -> None:
    assert expand(text.replace("$", "$$"), {"A": "1"}) == text


@given(st.text(alphabet="$()AB "), st.text(alphabet="$()A", max_size=5))
def test_values_are_not_expanded_again(text: str, value: str) -> None:
    assert expand(f"$(X){text}", {"X": value}) == value + expand(text, {"X": value})


def test_later_variables_see_earlier_ones_only() -> None:
    env = [
        {"name": "EARLY", "value": "$(POD_IP)"},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "URL", "value": "http://$(POD_IP):9000"},
    ]
    found = environment({"name": "c", "env": env}, POD, OBJECTS)
    assert found["EARLY"] == "$(POD_IP)"
    assert found["URL"] == "http://127.16.0.9:9000"


def test_env_overrides_env_from_and_may_use_it() -> None:
    container = {
        "name": "c",
        "envFrom": [{"prefix": "CM_", "configMapRef": {"name": "cm"}}, {"secretRef": {"name": "sec"}}],
        "env": [{"name": "CM_size", "value": "$(CM_size)0"}],
    }
    assert environment(container, POD, OBJECTS) == {"CM_color": "blue", "CM_size": "30", "token": "s3cret"}
    assert references(container) == {("ConfigMap", "cm"), ("Secret", "sec")}


def test_missing_keys_and_objects_name_themselves() -> None:
    def container(**source: Object) -> Object:
        return {"name": "c", "env": [{"name": "X", "valueFrom": source}]}

    with pytest.raises(ConfigError, match="env X: ConfigMap 'cm' has no key 'nope'"):
        environment(container(configMapKeyRef={"name": "cm", "key": "nope"}), POD, OBJECTS)
    with pytest.raises(ConfigError, match="ConfigMap 'gone' was not found"):
        environment(container(configMapKeyRef={"name": "gone", "key": "k"}), POD, OBJECTS)
    with pytest.raises(ConfigError, match="resourceFieldRef is not supported"):
        environment(container(resourceFieldRef={"resource": "limits.cpu"}), POD, OBJECTS)


def test_optional_sources_may_be_missing() -> None:
    container = {
        "name": "c",
        "envFrom": [{"configMapRef": {"name": "gone", "optional": True}}],
        "env": [
            {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "gone", "key": "k", "optional": True}}},
            {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "nope", "optional": True}}},
        ],
    }
    assert environment(container, POD, OBJECTS) == {}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "web"),
        ("metadata.namespace", "team"),
        ("metadata.uid", "u1"),
        ("metadata.labels['app']", "web"),
        ("metadata.labels['absent']", ""),
        ("metadata.annotations['huawei.com/AscendReal']", "Ascend910-3"),
        ("metadata.labels", 'app="web"\ntier="x"'),
        ("spec.nodeName", "pod-a-910c-0"),
        ("status.hostIP", "127.0.0.1"),
    ],
)
def test_fields(path: str, value: str) -> None:
    assert field_value(POD, path) == value


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'spec\.secret' is not supported"):
        field_value(POD, "spec.secret")


MOUNTS = [
    Mount("conf", "/etc/conf", Path("/state/v/conf")),
    Mount("deep", "/etc/conf/deep", Path("/state/v/deep")),
    Mount("models", "/models/", Path("/data/models")),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/etc/conf/app.yaml", "/state/v/conf/app.yaml"),
        ("/etc/conf", "/state/v/conf"),
        ("/etc/conf/deep/x", "/state/v/deep/x"),
        ("--config=/etc/conf/app.yaml,/etc/conf/b", "--config=/state/v/conf/app.yaml,/state/v/conf/b"),
        ('{"uri": "file:///models/tiny"}', '{"uri": "file:///data/models/tiny"}'),
        ("/etc/config", "/etc/config"),
        ("/etc/conf.d/x", "/etc/conf.d/x"),
        ("/opt/etc/conf/x", "/opt/etc/conf/x"),
        ("my/models/x", "my/models/x"),
        ("cat /etc/conf/a; ls /models", "cat /state/v/conf/a; ls /data/models"),
    ],
)
def test_mount_paths_become_directories(text: str, expected: str) -> None:
    assert rewrite_paths(text, MOUNTS) == expected


@given(st.text())
def test_without_mounts_nothing_changes(text: str) -> None:
    assert rewrite_paths(text, [Mount("root", "/", Path("/state"))]) == text


def test_a_launch_puts_it_together(tmp_path: Path) -> None:
    container = {
        "name": "c",
        "command": ["python", "-m", "$(MODULE)"],
        "args": ["--config", "/etc/conf/$(MODULE).json"],
        "env": [{"name": "MODULE", "value": "engine"}, {"name": "HOME", "value": "/models"}],
        "workingDir": "/does/not/exist",
    }
    found = launch(container, POD, {}, MOUNTS, {"PATH": "/bin", "HOME": "/h"}, tmp_path)
    assert found.argv == ("python", "-m", "engine", "--config", "/state/v/conf/engine.json")
    assert found.environ["PATH"] == "/bin"
    assert found.environ["HOME"] == "/data/models"
    assert found.environ["XDEEPSERVE_MOUNT_DEEP"] == "/state/v/deep"
    assert found.directory == tmp_path


def test_an_image_without_a_command_is_explained() -> None:
    with pytest.raises(ConfigError, match=r"container web: command is missing; .*'nginx:1'"):
        launch({"name": "web", "image": "nginx:1"}, POD, {}, [], {}, Path("/"))
