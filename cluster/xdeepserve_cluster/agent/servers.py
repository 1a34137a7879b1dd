"""Servers of a SuperPod as Kubernetes sees them. Pure: a server and its health in, a Node object out.

A 910C server has 8 chips of two dies, a 910B server 8 chips that count as one die each. Labels, the resource name and
the annotations of broken dies are those of Ascend's device plugin and NodeD, so that real nodes look the same. The
910B servers carry the SuperPod's id too: they stand beside it, reached by RoCE, and a SuperPod selects its nodes by it.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass

from xdeepserve_cluster.agent.moments import rfc3339
from xdeepserve_operator.api import names
from xdeepserve_operator.runtime.kube import Object

DIES = {"910B": 8, "910C": 16}
ACCELERATOR_TYPES = {"910B": "module-910b-8", "910C": "module-a3-16-super-pod"}
FAULT_LEVEL, FAULT_CODE = "L6", "80E18402"  # the device plugin's level and one of its codes for "separate this NPU"
HOST_IP = "127.0.0.1"
CAPACITY = {"cpu": "192", "memory": "1536Gi", "pods": "110"}
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
KUBELET_VERSION = "v1.34.4"  # whose behaviour the agent follows


@dataclass(frozen=True)
class Server:
    """One emulated server; `number` is its serverid, unique in the SuperPod."""

    name: str
    chip: str
    superpod: str
    number: int

    @property
    def dies(self) -> range:
        """Numbers of its dies."""
        return range(DIES[self.chip])


def parse_servers(text: str, superpod: str) -> list[Server]:
    """Servers from `910B=2,910C=4` (chip and how many), named `pod-a-910c-0` and so on. Raises ValueError."""
    servers: list[Server] = []
    for part in text.split(","):
        chip, _, count = part.strip().partition("=")
        if chip not in DIES or not count.isdecimal():
            raise ValueError(f"servers: {part!r} is not CHIP=NUMBER with a chip of {', '.join(DIES)}")
        if any(server.chip == chip for server in servers):
            raise ValueError(f"servers: {chip} is named twice")
        servers += [
            Server(f"{superpod}-{chip.lower()}-{index}", chip, superpod, len(servers) + index)
            for index in range(int(count))
        ]
    return servers


def node_labels(server: Server) -> dict[str, str]:
    """Kubernetes' own labels and Ascend's."""
    return {
        "kubernetes.io/hostname": server.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": _architecture(),
        names.NODE_LABEL_ACCELERATOR: "huawei-Ascend910",
        names.NODE_LABEL_ACCELERATOR_TYPE: ACCELERATOR_TYPES[server.chip],
        names.NODE_LABEL_CHIP: server.chip,
        names.NODE_LABEL_SUPERPOD: server.superpod,
        names.NODE_LABEL_SERVER: str(server.number),
    }


def node_annotations(unhealthy: Iterable[int]) -> dict[str, str]:
    """What the device plugin reports about broken dies; an empty list and string when all are well."""
    broken = [names.die_name(die) for die in sorted(unhealthy)]
    faults = [{"npu_name": name, "fault_level": FAULT_LEVEL, "fault_code": FAULT_CODE} for name in broken]
    return {
        names.NODE_ANNOTATION_UNHEALTHY: ",".join(broken),
        names.NODE_ANNOTATION_FAULT: json.dumps(faults, separators=(",", ":")),
    }


def node_status(server: Server, unhealthy: frozenset[int], port: int, since: float) -> Object:
    """Status of a working server; broken dies count as capacity and not as allocatable."""
    dies = len(server.dies)
    return {
        "capacity": {**CAPACITY, names.RESOURCE_DIE: str(dies)},
        "allocatable": {**CAPACITY, names.RESOURCE_DIE: str(dies - len(unhealthy))},
        "conditions": _conditions(since),
        "addresses": [{"type": "InternalIP", "address": HOST_IP}, {"type": "Hostname", "address": server.name}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "nodeInfo": {
            "machineID": server.name,
            "systemUUID": server.name,
            "bootID": server.name,
            "kernelVersion": os.uname().release,
            "osImage": f"emulated {server.chip} server",
            "containerRuntimeVersion": "process://1",
            "kubeletVersion": KUBELET_VERSION,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": _architecture(),
        },
    }


def node_object(server: Server, unhealthy: frozenset[int], port: int, since: float) -> Object:
    """The whole Node, as it is registered or applied."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": server.name, "labels": node_labels(server), "annotations": node_annotations(unhealthy)},
        "status": node_status(server, unhealthy, port, since),
    }


def differs(observed: Object, wanted: Object) -> bool:
    """Whether an observed Node must be written again; times do not count, nor what others add."""
    seen, want = observed.get("status", {}), wanted["status"]
    states = {condition["type"]: condition["status"] for condition in seen.get("conditions", [])}
    return (
        any(states.get(condition["type"]) != condition["status"] for condition in want["conditions"])
        or any(seen.get(part) != want[part] for part in ("addresses", "daemonEndpoints", "nodeInfo"))
        or not _covers(seen.get("capacity", {}), want["capacity"])
        or not _covers(seen.get("allocatable", {}), want["allocatable"])
        or not _covers(observed["metadata"].get("labels", {}), wanted["metadata"]["labels"])
        or not _covers(observed["metadata"].get("annotations", {}), wanted["metadata"]["annotations"])
    )


def _covers(seen: dict[str, str], wanted: dict[str, str]) -> bool:
    return all(seen.get(key) == value for key, value in wanted.items())


def _conditions(since: float) -> list[Object]:
    pressures = [(f"{what}Pressure", "False", f"KubeletHasSufficient{what}") for what in ("Memory", "PID")]
    facts = [*pressures, ("DiskPressure", "False", "KubeletHasNoDiskPressure"), ("Ready", "True", "KubeletReady")]
    moment = rfc3339(since)
    return [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": "emulated server",
            "lastHeartbeatTime": moment,
            "lastTransitionTime": moment,
        }
        for kind, status, reason in facts
    ]


def _architecture() -> str:
    machine = platform.machine()
    return ARCHITECTURES.get(machine, machine)
