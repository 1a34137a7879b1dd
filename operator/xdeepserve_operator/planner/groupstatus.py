"""Status of a DPGroup: its ranks, one a die, as its pod and its TE-shell show them.

A status is written a few times in a group's life, not with every step of its start nor every request: nothing is said
before the pod has its dies, the incarnation is given once the engine is a member, KV use is rounded to tens.
Of an instance of many groups only the unusual is told: a group that joined without any trouble has no status, for its
TaskExecutor says that the whole instance serves, and a new epoch alone, which changes every group, is not written.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from xdeepserve_operator.api.v1alpha1.group import DPGroupStatus, RankState, RankStatus
from xdeepserve_operator.planner.conditions import MESSAGE_LIMIT, READY, condition_for
from xdeepserve_operator.planner.instance import RankView

_SILENT = frozenset({"Hung", "Crashed"})
_KV_STEP = 10
MANY = 64  # groups of an instance


def group_status(obj: Mapping[str, Any], rank: RankView, now: datetime, *, mates: int = 1) -> dict[str, Any] | None:
    """The status to write into the DPGroup ``obj``; None while there is nothing to say.

    ``mates``: DP groups of its instance.
    """
    pod, group = rank.pod, rank.group
    state = _state(rank)
    if group is None or pod is None or not pod.node or (state == "Starting" and not pod.dies):
        return None
    heard = rank.report.status if rank.report is not None else None
    dies = sorted(pod.dies)
    message = f"{pod.name} on {pod.node}" if rank.fault is None else rank.fault.message
    if pod.error is not None and state != "Joined":
        message = f"{pod.name}: {pod.error}"
    status = DPGroupStatus(
        observed_generation=obj["metadata"].get("generation", 0),
        ranks=[
            RankStatus(
                rank=group.index * group.dies + number,
                pod=pod.name,
                node=pod.node,
                die=dies[number] if number < len(dies) else -1,
                incarnation=heard.incarnation if heard is not None and heard.epoch else "",
                state=state,
            )
            for number in range(group.dies)
        ],
        epoch=heard.epoch if heard is not None else 0,
        admission="Open" if state == "Joined" else "Closed",
        kv_usage_percent=round(heard.kv_usage * 100 / _KV_STEP) * _KV_STEP if heard is not None else 0,
        error=str(pod.error or "")[:MESSAGE_LIMIT] if state != "Joined" else "",
    ).to_wire()
    reason = rank.fault.reason if rank.fault is not None else state
    status |= {"conditions": [condition_for(obj, READY, state == "Joined", reason, message, now)]}
    return None if mates > MANY and _usual(obj.get("status"), status, state) else status


def _usual(before: Mapping[str, Any] | None, status: Mapping[str, Any], state: RankState) -> bool:
    """Whether the status is what everybody would expect who knows the one before."""
    if not before:
        return state in ("Starting", "Joined")
    told = [(one["type"], one["status"], one["reason"]) for one in before.get("conditions") or ()]
    telling = [(one["type"], one["status"], one["reason"]) for one in status["conditions"]]
    return told == telling and before.get("ranks") == status["ranks"] and before.get("error", "") == status["error"]


def _state(rank: RankView) -> RankState:
    if rank.fault is not None:
        return "Silent" if rank.fault.reason in _SILENT else "Failed"
    status = rank.report.status if rank.report is not None else None
    if status is not None and status.state == "Serving":
        return "Joined"
    return "Failed" if rank.pod is not None and rank.pod.error is not None else "Starting"
