"""Status of a TaskExecutor: counts, instances, conditions."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from xdeepserve_operator.api.v1alpha1.executor import ReplicaStatus, TaskExecutorStatus
from xdeepserve_operator.planner.conditions import READY, condition_for
from xdeepserve_operator.planner.gang import Waiting
from xdeepserve_operator.planner.instance import InstanceView
from xdeepserve_operator.planner.readiness import Verdict, placed_verdict

PLACED = "Placed"


def executor_status(
    obj: Mapping[str, Any],
    wanted: int,
    revision: str,
    views: Sequence[InstanceView],
    waiting: Mapping[int, Waiting],
    ready: Verdict,
    now: datetime,
    selector: str,
) -> dict[str, Any]:
    """The whole status of the TaskExecutor ``obj``; ``waiting`` and ``ready`` as in planner.readiness."""
    held = [view for view in views if view.holds_dies]
    placed = placed_verdict(views, wanted, waiting)
    status = TaskExecutorStatus(
        observed_generation=obj["metadata"].get("generation", 0),
        replicas=len(held),
        ready_replicas=sum(view.ready for view in held),
        updated_replicas=sum(view.has_revision(revision) for view in held),
        selector=selector,
        current_revision=revision,
        instances=[
            ReplicaStatus(index=view.replica, ready=view.ready, epoch=view.epoch, revision=view.revision)
            for view in held
        ],
    ).to_wire()
    return status | {
        "conditions": [
            condition_for(obj, READY, ready.holds, ready.reason, ready.message, now),
            condition_for(obj, PLACED, placed.holds, placed.reason, placed.message, now),
        ]
    }
