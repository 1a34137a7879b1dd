"""Objects that the API server takes, and a way to break one field of them."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from xdeepserve_operator.api.crdgen import custom_resource_definition
from xdeepserve_operator.api.names import API_VERSION
from xdeepserve_operator.api.v1alpha1.kinds import KINDS

Object = dict[str, Any]
NAMESPACE = "admission"
MODEL = {"name": "tiny", "uri": "file:///models/tiny"}


def _object(kind: str, name: str, spec: Object) -> Object:
    scope = {} if kind == "SuperPod" else {"namespace": NAMESPACE}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, **scope}, "spec": spec}


SUPERPOD = _object(
    "SuperPod",
    "admission",
    {
        "superpodId": "pod-a",
        "pools": [
            {"name": "b910", "chip": "910B", "diesPerNode": 8, "planes": ["RoCE", "VPC"]},
            {"name": "c910", "chip": "910C", "diesPerNode": 16, "planes": ["UB", "RoCE", "VPC"]},
        ],
    },
)
MODEL_DEPLOYMENT = _object(
    "ModelDeployment",
    "chat",
    {
        "superPodRef": {"name": "pod-a"},
        "model": MODEL,
        "roles": [
            {"name": "prefill", "type": "Prefill", "chips": ["910B", "910C"]},
            {"name": "decode", "type": "Decode", "chips": ["910C"], "parallelism": {"dp": 2, "ep": 2}},
        ],
    },
)
TASK_EXECUTOR = _object(
    "TaskExecutor",
    "chat-decode",
    {"role": "Decode", "chips": ["910C"], "superPodRef": {"name": "pod-a"}, "model": MODEL},
)
DP_GROUP = _object(
    "DPGroup",
    "chat-decode-0-dp0",
    {
        "executorRef": {"name": "chat-decode"},
        "role": "Decode",
        "replica": 0,
        "index": 0,
        "dies": 1,
        "chip": "910C",
        "node": "server-3",
        "revision": "5f3a",
    },
)
FAULT_INJECTION = _object(
    "FaultInjection", "kill", {"target": {"taskExecutor": "chat-decode"}, "fault": {"type": "DieKill"}}
)
SCALING_POLICY = _object(
    "ScalingPolicy",
    "scale",
    {
        "targetRef": {"name": "chat"},
        "roles": [
            {"name": "prefill", "minReplicas": 0, "maxReplicas": 4},
            {"name": "decode", "minReplicas": 0, "maxReplicas": 4},
        ],
    },
)
EXPERT_PLACEMENT = _object("ExpertPlacement", "experts", {"targetRef": {"name": "chat-decode"}})
SAMPLES = (SUPERPOD, MODEL_DEPLOYMENT, TASK_EXECUTOR, DP_GROUP, FAULT_INJECTION, SCALING_POLICY, EXPERT_PLACEMENT)


def changed(sample: Object, path: str, value: Any) -> Object:
    """A copy of ``sample`` with the value at ``path``, e.g. ``spec.roles.1.chips``, made where it is missing."""
    result = deepcopy(sample)
    node: Any = result
    *parents, last = path.split(".")
    for step in parents:
        node = node[int(step)] if isinstance(node, list) else node.setdefault(step, {})
    node[int(last) if isinstance(node, list) else last] = value
    return result


def cel_rules() -> Iterator[tuple[str, str]]:
    """(kind, message) of every CEL rule in the CRDs."""
    for kind in KINDS:
        yield from ((kind.kind, message) for message in _messages(custom_resource_definition(kind)))


def _messages(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from (rule["message"] for rule in node.get("x-kubernetes-validations", []))
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _messages(child)
