"""What must hold at every moment of a soak, as counts of where it does not. Pure: objects as the API server has them.

A budget is about those who serve: an instance that does not may be replaced at any time. From outside one cannot see
whether an instance served when it was told to leave, so only deployments are asked that nothing has hurt for a while.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set

from xdeepserve_bench.control_plane.manifests import DIES, DIES_OF_910B
from xdeepserve_operator.api import names
from xdeepserve_operator.controllers.objects import label, leaving
from xdeepserve_operator.planner.conditions import find_condition
from xdeepserve_operator.runtime.kube import Object


def promised_twice(groups: Sequence[Object]) -> int:
    """Servers of which groups hold more dies than there are."""
    held = Counter[str]()
    for group in groups:
        held[group["spec"]["node"]] += group["spec"]["dies"]
    return sum(dies > (DIES if _is_910c(node) else DIES_OF_910B) for node, dies in held.items())


def decode_elsewhere(groups: Sequence[Object]) -> int:
    """Decode groups on another chip than 910C."""
    return sum(group["spec"]["role"] == "Decode" and not _is_910c(group["spec"]["node"]) for group in groups)


def set_by_others(executors: Sequence[Object], asked: Mapping[str, int]) -> int:
    """TaskExecutors with other replicas than were asked of them: somebody else sets them too."""
    return sum(one["spec"]["replicas"] != asked.get(_name(one), one["spec"]["replicas"]) for one in executors)


def over_budget(
    executors: Sequence[Object], groups: Sequence[Object], pods: Sequence[Object], calm: Set[str]
) -> dict[str, int]:
    """By TaskExecutor of a deployment in ``calm``: serving instances that leave for a new revision, if too many."""
    serving = {label(pod, names.LABEL_GROUP) for pod in pods if _serves(pod)}
    members: dict[tuple[str, int], list[Object]] = defaultdict(list)
    for group in groups:
        members[label(group, names.LABEL_EXECUTOR), group["spec"]["replica"]].append(group)
    found: dict[str, int] = {}
    for executor in executors:
        name, spec = _name(executor), executor["spec"]
        if label(executor, names.LABEL_DEPLOYMENT) in calm:
            leave = [members[name, replica] for replica in range(spec["replicas"]) if _outdated(members[name, replica])]
            count = sum(all(_name(group) in serving for group in instance) for instance in leave)
            if count > spec["update"]["maxUnavailable"]:
                found[name] = count
    return found


def _outdated(instance: Sequence[Object]) -> bool:
    return any(group["spec"].get("leaving", {}).get("reason") == "Outdated" for group in instance)


def _serves(pod: Object) -> bool:
    ready = (find_condition(pod, "Ready") or {}).get("status") == "True"
    return ready and not leaving(pod) and pod["status"].get("phase") == "Running"


def _is_910c(node: str) -> bool:
    return "-910c-" in node


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])
