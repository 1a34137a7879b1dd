"""What the benchmark asks for: hollow servers, SuperPods, deployments, and the StatefulSet to compare with. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from xdeepserve_cluster.agent.servers import Server, node_object
from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.executor import TaskExecutorSpec
from xdeepserve_operator.resources.engine import engine_pod
from xdeepserve_operator.resources.settings import EngineImage

Object = dict[str, Any]
SERVERS, DIES = 48, 16  # of a SuperPod; beside them stands one 910B server for prefill
DIES_OF_910B = 8
ATTENTION, EXPERTS = 480, 288
GROUPS = ATTENTION + EXPERTS
NAMESPACE, PEER = "default", "peer"
KWOK = {"kwok.x-k8s.io/node": "fake"}
IMAGE = EngineImage("xdeepserve:bench")
MODEL = {"name": "m", "uri": "file:///models/m", "maxContextTokens": 4096}


def nodes(superpod: str, now: float, servers: int = SERVERS) -> Iterator[Object]:
    """``servers`` 910C servers and one 910B server, ready."""
    kinds = [("910C", index) for index in range(servers)] + [("910B", servers)]
    for chip, number in kinds:
        node = node_object(Server(f"{superpod}-{chip.lower()}-{number}", chip, superpod, number), frozenset(), 0, now)
        node["metadata"]["annotations"] |= KWOK
        yield node


def super_pod(name: str) -> Object:
    """The SuperPod of those servers."""
    pools = [
        {"name": "b910", "chip": "910B", "diesPerNode": DIES_OF_910B, "planes": ["RoCE"]},
        {"name": "c910", "chip": "910C", "diesPerNode": DIES, "planes": ["UB", "RoCE"]},
    ]
    return _custom("SuperPod", name, {"superpodId": name, "pools": pools}, None)


def deployment(name: str, superpod: str, groups: int, *, prefill: int = 1, batch: int = 8) -> Object:
    """A ModelDeployment: ``prefill`` instances of one die on 910B, one decode instance of ``groups`` dies on 910C."""
    spread = {"dp": groups, "tp": 1, "ep": groups}
    return _custom(
        "ModelDeployment",
        name,
        {
            "superPodRef": {"name": superpod},
            "model": MODEL,
            "roles": [
                {"name": "prefill", "type": "Prefill", "chips": ["910B", "910C"], "replicas": prefill},
                {
                    "name": "decode",
                    "type": "Decode",
                    "chips": ["910C"],
                    "replicas": 1,
                    "parallelism": spread,
                    "maxBatchPerGroup": batch,
                },
            ],
            "frontend": {"replicas": 1},
        },
        NAMESPACE,
    )


def stateful_set(name: str, replicas: int) -> Object:
    """The peer: ``replicas`` pods with the containers of an engine pod, started in parallel."""
    labels = {"app": name}
    spec = _engine_template()
    del spec["affinity"]
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": PEER},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def _engine_template() -> Object:
    spec = TaskExecutorSpec.model_validate(
        {
            "role": "Decode",
            "chips": ["910C"],
            "superPodRef": {"name": "s"},
            "model": MODEL,
            "parallelism": {"dp": GROUPS, "tp": 1, "ep": GROUPS},
        }
    )
    meta = {"name": "peer", "namespace": PEER, "uid": "0"}
    executor = {"metadata": meta, "spec": spec.to_wire()}
    place = {"attempt": 0, "replica": 0, "index": 0, "dies": 1, "revision": "0", "node": "none"}
    group: Mapping[str, Any] = {"metadata": meta, "spec": place}
    template: Object = engine_pod(executor, spec, group, "peer-control", IMAGE)["spec"]
    return template


def _custom(kind: str, name: str, spec: Object, namespace: str | None) -> Object:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
