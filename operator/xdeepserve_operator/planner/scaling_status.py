"""What a ScalingPolicy remembers in its status, and what it says.

``scaledFrom`` and ``scaledTo`` are written before a change is made and made equal once it is seen. So a change that a
crash cut off is recognised as one's own, and any other number as somebody else's, which stays so until the policy's
spec is edited. Loads move all the time; a status is only written when a decision or the picture changes.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from xdeepserve_operator.api.v1alpha1.scaling import RoleScaling, ScalingEvent, ScalingPolicyStatus
from xdeepserve_operator.planner.conditions import format_time
from xdeepserve_operator.planner.scaling import Decision

HISTORY = 10
_SAME_SCORE = 20  # percent


def foreign(policy: Mapping[str, Any], replicas: Mapping[str, int]) -> frozenset[str]:
    """Roles whose present number is somebody else's; ``replicas`` by role."""
    status = policy.get("status", {})
    if status.get("observedGeneration") != policy["metadata"].get("generation"):
        return frozenset()
    return frozenset(
        one["name"]
        for one in status.get("roles") or ()
        if one["name"] in replicas
        and (one["reason"] == "ScaledByUser" or replicas[one["name"]] not in (one["scaledFrom"], one["scaledTo"]))
    )


def scaling_status(
    policy: Mapping[str, Any], decisions: Sequence[Decision], *, active: bool, now: datetime
) -> dict[str, Any]:
    """The status without conditions; with ``active``, the decisions are about to be carried out."""
    before = {one["name"]: one for one in policy.get("status", {}).get("roles") or ()}
    roles = [_role(before.get(one.role), one, active=active) for one in decisions]
    news = [one for one in decisions if one.after != one.before and not _told(before.get(one.role), one, active=active)]
    events = [
        ScalingEvent(time=format_time(now), role=one.role, before=one.before, after=one.after, reason=one.reason)
        for one in news
    ]
    old = [ScalingEvent.model_validate(one) for one in policy.get("status", {}).get("history") or ()]
    return ScalingPolicyStatus(
        observed_generation=policy["metadata"].get("generation", 0),
        roles=roles,
        summary=", ".join(_summary(one) for one in roles)[:256],
        history=[*events, *old][:HISTORY],
    ).to_wire()


def _role(before: Mapping[str, Any] | None, decision: Decision, *, active: bool) -> RoleScaling:
    moves = active and decision.after != decision.before
    role = RoleScaling(
        name=decision.role,
        replicas=decision.before,
        desired=decision.after,
        score_percent=decision.score,
        reason=decision.reason,
        message=decision.message[:1024],
        scaled_from=decision.before,
        scaled_to=decision.after if moves else decision.before,
    )
    old = None if before is None else RoleScaling.model_validate(before)
    if old is not None and abs(old.score_percent - role.score_percent) < _SAME_SCORE:
        told = role.model_copy(update={"score_percent": old.score_percent, "message": old.message})
        if told == old:
            return old
    return role


def _told(before: Mapping[str, Any] | None, decision: Decision, *, active: bool) -> bool:
    """Whether an advice was given before already."""
    return not active and before is not None and before["desired"] == decision.after


def _summary(role: RoleScaling) -> str:
    return f"{role.name} {role.replicas}" + (f"->{role.desired}" if role.desired != role.replicas else "")
