"""Servers become nodes that look like Ascend's."""

from __future__ import annotations

import copy
import json

import pytest

from xdeepserve_cluster.agent.servers import differs, node_object, parse_servers
from xdeepserve_operator.runtime.kube import Object


def node(chip: str = "910C", unhealthy: frozenset[int] = frozenset()) -> Object:
    [server] = parse_servers(f"{chip}=1", "pod-a")
    return node_object(server, unhealthy, 10250, 1.7e9)


def test_servers_are_named_by_chip_and_numbered_through() -> None:
    servers = parse_servers("910B=2,910C=1", "pod-a")
    assert [(server.name, server.number, len(server.dies)) for server in servers] == [
        ("pod-a-910b-0", 0, 8),
        ("pod-a-910b-1", 1, 8),
        ("pod-a-910c-0", 2, 16),
    ]


@pytest.mark.parametrize("text", ["", "910D=1", "910C", "910C=x", "910C=-1", "910C=1,910C=2"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="servers: "):
        parse_servers(text, "pod-a")


def test_labels_are_those_of_real_nodes() -> None:
    labels = node("910B")["metadata"]["labels"]
    assert labels["accelerator"] == "huawei-Ascend910"
    assert labels["accelerator-type"] == "module-910b-8"
    assert labels["node.kubernetes.io/npu.chip.name"] == "910B"
    assert labels["huawei.com/topotree.superpodid"] == "pod-a"
    assert labels["kubernetes.io/hostname"] == "pod-a-910b-0"


def test_broken_dies_are_capacity_but_not_allocatable() -> None:
    broken = node(unhealthy=frozenset({11, 3}))
    assert broken["status"]["capacity"]["huawei.com/Ascend910"] == "16"
    assert broken["status"]["allocatable"]["huawei.com/Ascend910"] == "14"
    annotations = broken["metadata"]["annotations"]
    assert annotations["huawei.com/Ascend910-Unhealthy"] == "Ascend910-3,Ascend910-11"
    faults = json.loads(annotations["huawei.com/Ascend910-Fault"])
    assert [(fault["npu_name"], fault["fault_level"]) for fault in faults] == [
        ("Ascend910-3", "L6"),
        ("Ascend910-11", "L6"),
    ]


def test_what_others_add_is_no_difference() -> None:
    observed = copy.deepcopy(node())
    observed["metadata"]["labels"]["team"] = "a"
    observed["metadata"]["annotations"]["x"] = "y"
    observed["status"]["capacity"]["ephemeral-storage"] = "1Gi"
    observed["status"]["conditions"].append({"type": "Custom", "status": "True"})
    assert not differs(observed, node())


def test_silence_found_by_the_controller_manager_is_a_difference() -> None:
    observed = copy.deepcopy(node())
    for condition in observed["status"]["conditions"]:
        condition["status"] = "Unknown"
    assert differs(observed, node())


def test_a_changed_health_is_a_difference() -> None:
    assert differs(node(), node(unhealthy=frozenset({0})))
    assert differs(node(unhealthy=frozenset({0})), node())
