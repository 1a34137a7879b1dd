"""Status of a TaskExecutor: counts, instances, conditions."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from xdeepserve_operator.api.v1alpha1.executor import ReplicaStatus, TaskExecutorStatus
from xdeepserve_operator.planner.conditions import READY, condition_for, find_condition, format_time
from xdeepserve_operator.planner.gang import Waiting
from xdeepserve_operator.planner.goal import Goal
from xdeepserve_operator.planner.instance import InstanceView
from xdeepserve_operator.planner.progress import PROGRESSING, Progress
from xdeepserve_operator.planner.readiness import Verdict, placed_verdict

PLACED = "Placed"
_UNSETTLED = frozenset({"Updating", "Faulted", "Degraded"})


def lacks_dies(executor: Mapping[str, Any]) -> bool:
    """Whether the TaskExecutor's status says that it waits for dies."""
    return (find_condition(executor, PLACED) or {}).get("status") == "False"


def unsettled(executor: Mapping[str, Any], *, partition: bool) -> str:
    """The rollout or recovery that runs in a TaskExecutor; empty when none does. With a ``partition``, a rollout that
    is not complete may stay so."""
    ready = find_condition(executor, READY) or {}
    if ready.get("reason") in _UNSETTLED:
        return str(ready["reason"])
    status = executor.get("status", {})
    if status.get("updateRevision") != status.get("currentRevision") and not partition:
        return "a rollout is not complete"
    return ""


def executor_status(
    obj: Mapping[str, Any],
    goal: Goal,
    views: Sequence[InstanceView],
    waiting: Mapping[int, Waiting],
    ready: Verdict,
    progress: Progress,
    now: datetime,
    selector: str,
) -> dict[str, Any]:
    """The whole status of the TaskExecutor ``obj``; ``waiting`` and ``ready`` as in planner.readiness."""
    held = [view for view in views if view.holds_dies]
    placed = placed_verdict(views, goal.replicas, waiting)
    updated = {view.replica for view in held if view.has_revision(goal.target)}
    status = TaskExecutorStatus(
        observed_generation=obj["metadata"].get("generation", 0),
        replicas=len(held),
        ready_replicas=sum(view.serves for view in held),
        updated_replicas=len(updated),
        updated_ready_replicas=progress.updated_ready,
        selector=selector,
        current_revision=goal.target if updated >= set(range(goal.replicas)) else goal.stable,
        update_revision=goal.target,
        progress_time=format_time(progress.time),
        instances=[
            ReplicaStatus(
                index=view.replica,
                ready=view.ready,
                epoch=view.epoch,
                revision=view.revision,
                leaving=view.leaving is not None,
            )
            for view in held
        ],
    ).to_wire()
    verdicts = {READY: ready, PLACED: placed, PROGRESSING: progress.verdict}
    return status | {
        "conditions": [
            condition_for(obj, kind, verdict.holds, verdict.reason, verdict.message, now)
            for kind, verdict in verdicts.items()
        ]
    }
