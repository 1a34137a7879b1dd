"""What an ExpertPlacement says: instances, history, conditions. Loads move always; small moves are not written."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from xdeepserve_operator.api.v1alpha1.experts import (
    ExpertPlacementSpec,
    ExpertPlacementStatus,
    InstancePlacement,
    PlacementEvent,
)
from xdeepserve_operator.planner.conditions import READY, condition_for
from xdeepserve_operator.planner.expert_load import Measured
from xdeepserve_operator.planner.readiness import Verdict

HISTORY = 10
SAME_PERCENT = 3
BALANCED, SWAPPING, STALLED, COMPLETE = "Balanced", "SwapInProgress", "Stalled", "ReplicaComplete"


def percent(ratio: float) -> int:
    """A ratio in %."""
    return round(100 * ratio)


def with_load(now: InstancePlacement, load: Measured | None) -> InstancePlacement:
    """The instance with what was measured, if that is news."""
    if load is None:
        return now
    old, mean, worst = now.imbalance, percent(load.mean), percent(load.worst)
    if abs(old.after - mean) < SAME_PERCENT and abs(old.worst_layer - worst) < 2 * SAME_PERCENT:
        return now
    return now.model_copy(update={"imbalance": old.model_copy(update={"after": mean, "worst_layer": worst})})


def placement_status(
    placement: Mapping[str, Any],
    spec: ExpertPlacementSpec,
    instances: Sequence[InstancePlacement],
    events: Sequence[PlacementEvent],
    measured: Mapping[int, Measured],
    ready: Verdict,
    problem: Verdict | None,
    apply_request: str,
    now: datetime,
) -> dict[str, Any]:
    """The whole status. ``events`` are news, the newest first; ``measured`` by instance, of the placement in force;
    ``problem``: why there is no plan; ``apply_request``: the last one that was followed."""
    old = [PlacementEvent.model_validate(one) for one in placement.get("status", {}).get("history") or ()]
    status = ExpertPlacementStatus(
        observed_generation=placement["metadata"].get("generation", 0),
        apply_request=apply_request,
        instances=list(instances),
        summary=_summary(instances),
        history=[_judged(one, instances, measured) for one in [*events, *old][:HISTORY]],
    ).to_wire()
    verdicts = {
        READY: ready,
        BALANCED: problem or _balanced(spec, instances),
        SWAPPING: _swapping(instances),
        STALLED: _stalled(instances),
        COMPLETE: _complete(instances),
    }
    return status | {
        "conditions": [
            condition_for(placement, kind, one.holds, one.reason, one.message, now) for kind, one in verdicts.items()
        ]
    }


def _summary(instances: Sequence[InstancePlacement]) -> str:
    if not instances or not instances[0].imbalance.after:
        return ""
    load = instances[0].imbalance
    return f"{load.before / 100:.2f}->{load.after / 100:.2f}" if load.before else f"{load.after / 100:.2f}"


def _judged(
    event: PlacementEvent, instances: Sequence[InstancePlacement], measured: Mapping[int, Measured]
) -> PlacementEvent:
    """A change that was applied, with what came of it once that is measured."""
    force = {one.index: one.map_version for one in instances}
    load = measured.get(event.index)
    if event.after or event.outcome != "Applied" or load is None or force.get(event.index) != event.version:
        return event
    return event.model_copy(update={"after": percent(load.mean)})


def _balanced(spec: ExpertPlacementSpec, instances: Sequence[InstancePlacement]) -> Verdict:
    known = [one for one in instances if one.imbalance.after]
    if not known:
        return Verdict(
            False, "NoData", "nothing was measured yet: no interval has passed in which tokens were computed"
        )
    worst = max(known, key=lambda one: one.imbalance.after)
    bound = spec.limits.min_imbalance_percent
    message = f"instance {worst.index}: busiest rank {worst.imbalance.after / 100:.2f} times the mean"
    if worst.imbalance.after < bound:
        return Verdict(True, "Even", message)
    return Verdict(False, "Uneven", f"{message}, which is at or above {bound / 100:.2f}")


def _swapping(instances: Sequence[InstancePlacement]) -> Verdict:
    moving = [one for one in instances if one.swap_phase != "Idle"]
    if not moving:
        return Verdict(False, "Idle", "no expert moves")
    first = moving[0]
    return Verdict(
        True, first.swap_phase, f"instance {first.index}: {first.layers_done} of {first.layers_total} layers are done"
    )


def _stalled(instances: Sequence[InstancePlacement]) -> Verdict:
    stuck = [one for one in instances if one.stalled]
    if stuck:
        return Verdict(True, "GivenUp", f"instance {stuck[0].index}: {stuck[0].message}")
    return Verdict(False, "Progressing", "the last change was taken up")


def _complete(instances: Sequence[InstancePlacement]) -> Verdict:
    missing = sum(one.missing_experts for one in instances)
    if missing:
        return Verdict(False, "MissingExperts", f"{missing} experts have no copy")
    return Verdict(True, "AllExperts", "every expert has a copy")
