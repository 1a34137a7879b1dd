"""What users apply, as plain objects."""

from typing import Any

from xdeepserve_operator.api import names

from .driver import NAMESPACE

Object = dict[str, Any]


def superpod() -> Object:
    """A SuperPod with both chips."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": "SuperPod",
        "metadata": {"name": "pod-a"},
        "spec": {
            "superpodId": "0",
            "pools": [
                {"name": "ub", "chip": "910C", "diesPerNode": 16, "planes": ["UB", "RoCE"]},
                {"name": "roce", "chip": "910B", "diesPerNode": 8, "planes": ["RoCE"]},
            ],
        },
    }


def role(
    name: str, kind: str, *, chips: list[str] | None = None, replicas: int = 1, dp: int = 1, tp: int = 1
) -> Object:
    """A role of a ModelDeployment."""
    return {
        "name": name,
        "type": kind,
        "chips": chips or (["910C"] if kind == "Decode" else ["910B", "910C"]),
        "replicas": replicas,
        "parallelism": {"dp": dp, "tp": tp, "ep": dp * tp},
    }


def deployment(name: str = "chat", roles: list[Object] | None = None, frontends: int = 1) -> Object:
    """The quickstart's ModelDeployment unless told otherwise."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "superPodRef": {"name": "pod-a"},
            "model": {"name": "tiny", "uri": "file:///models/tiny", "maxContextTokens": 4096},
            "roles": roles or [role("prefill", "Prefill"), role("decode", "Decode", dp=2)],
            "frontend": {"replicas": frontends},
        },
    }


def executor(name: str, *, dp: int = 1, tp: int = 1, replicas: int = 1, kind: str = "Decode") -> Object:
    """A TaskExecutor of its own."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": "TaskExecutor",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "role": kind,
            "chips": ["910C"],
            "superPodRef": {"name": "pod-a"},
            "replicas": replicas,
            "parallelism": {"dp": dp, "tp": tp, "ep": dp * tp},
            "model": {"name": "tiny", "uri": "file:///models/tiny"},
        },
    }


def fault(name: str, target: str) -> Object:
    """A FaultInjection on a TaskExecutor."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": "FaultInjection",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"target": {"taskExecutor": target}, "fault": {"type": "DieKill"}},
    }
