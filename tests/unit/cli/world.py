"""Objects as the API server would show them, for the commands that read them."""

from typing import Any

from xdeepserve_operator.api import names
from xdeepserve_operator.planner.servers import Health, Server

Object = dict[str, Any]


def condition(kind: str, status: bool, reason: str, message: str = "") -> Object:
    return {"type": kind, "status": str(status), "reason": reason, "message": message}


def deployment(name: str, ready: bool = True, reason: str = "Ready", message: str = "") -> Object:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "status": {"readyRoles": "P 1/1 D 1/1", "conditions": [condition("Ready", ready, reason, message)]},
    }


def executor(name: str, owner: str = "", dp: int = 2, ready: bool = True) -> Object:
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {names.LABEL_DEPLOYMENT: owner} if owner else {}},
        "spec": {"role": "Decode", "replicas": 1, "parallelism": {"dp": dp, "tp": 1, "ep": dp}},
        "status": {
            "readyReplicas": int(ready),
            "instances": [{"index": 0, "ready": ready, "epoch": 3, "revision": "r1"}],
            "conditions": [condition("Ready", ready, "Ready" if ready else "Faulted")],
        },
    }


def group(owner: str, index: int, ready: bool = True, die: int = 4) -> Object:
    name = f"{owner}-0-dp{index}"
    rank = {"rank": index, "pod": f"{name}-0", "node": "s0", "die": die, "state": "Joined" if ready else "Silent"}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"executorRef": {"name": owner}, "replica": 0, "index": index, "chip": "910C", "node": "s0"},
        "status": {
            "ranks": [rank],
            "epoch": 3,
            "conditions": [condition("Ready", ready, "Joined" if ready else "Hung")],
        },
    }


def pod(name: str, component: str, *, owner: str = "", of_group: str = "", ready: bool = True) -> Object:
    labels = {names.LABEL_COMPONENT: component, names.LABEL_DEPLOYMENT: owner, names.LABEL_GROUP: of_group}
    return {
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"nodeName": "s0", "containers": []},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [condition("Ready", ready, "")]},
    }


def server(name: str, *, chip: str = "910C", used: int = 0, mismatch: str | None = None, **health: Any) -> Server:
    well = {"ready": True, "lost": False, "schedulable": True, "unhealthy": frozenset[int]()}
    return Server(name, "pod-a", "pool", chip, 16, 16, used, Health(**well | health), mismatch, "UB")  # type: ignore[arg-type]
