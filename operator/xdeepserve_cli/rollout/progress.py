"""How far a rollout has come, in one line, and whether waiting any longer makes sense. Pure.

The ModelDeployment's condition Progressing tells it, as soon as it speaks of the present spec.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from xdeepserve_operator.planner.conditions import find_condition
from xdeepserve_operator.planner.progress import PROGRESSING
from xdeepserve_operator.runtime.kube import Object


class End(Enum):
    """What came of a rollout."""

    DONE = "Complete"
    LATE = "ProgressDeadlineExceeded"


@dataclass(frozen=True)
class Stage:
    """One look at a rollout; ``end`` is None while it goes on."""

    text: str
    end: End | None
    document: dict[str, Any]


def stage_of(deployment: Object) -> Stage:
    """What a ModelDeployment says about its rollout."""
    metadata, status = deployment["metadata"], deployment.get("status", {})
    name, condition = metadata["name"], find_condition(deployment, PROGRESSING)
    current = condition is not None and condition.get("observedGeneration", 0) >= metadata.get("generation", 0)
    reason = str(condition["reason"]) if condition is not None and current else "Unobserved"
    message = str(condition.get("message", "")) if condition is not None and current else "its spec is not observed yet"
    end = next((one for one in End if one.value == reason), None)
    document = {
        "name": name,
        "revision": status.get("revision", 0),
        "reason": reason,
        "message": message,
        "complete": end is End.DONE,
        "roles": status.get("roles") or [],
    }
    if end is End.DONE:
        return Stage(f'modeldeployment "{name}" successfully rolled out', end, document)
    if end is End.LATE:
        return Stage(f'modeldeployment "{name}" exceeded its progress deadline: {message}', end, document)
    return Stage(f'Waiting for rollout of modeldeployment "{name}": {message}', None, document)
