"""Progressing: whether a rollout, or a first start, comes further.

A step is a new target, or one more replica that serves at the target. When there was none for
``progressDeadlineSeconds`` and the rollout is not complete, Progressing is False with reason ProgressDeadlineExceeded;
nothing is undone by itself, and the next step turns it True again. A pause stops the clock, the end of it starts it
anew. A rollout that was complete stays so: what is lost later is a fault, not a rollout. The time of the last step and
what was counted then are in the status, so that a new operator goes on counting.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from xdeepserve_operator.api.v1alpha1.update import Pace
from xdeepserve_operator.planner.conditions import find_condition, parse_time, seconds_since
from xdeepserve_operator.planner.goal import Goal
from xdeepserve_operator.planner.instance import InstanceView
from xdeepserve_operator.planner.readiness import Verdict

PROGRESSING = "Progressing"


@dataclass(frozen=True, slots=True)
class Progress:
    """When the last step was, how many replicas serve at the target, and what to say of it."""

    time: datetime
    updated_ready: int
    verdict: Verdict


def progress_of(
    obj: Mapping[str, Any], goal: Goal, views: Sequence[InstanceView], pace: Pace, hindrance: str, now: datetime
) -> Progress:
    """Progress of the TaskExecutor ``obj``; ``hindrance`` says why the next replica may not leave yet."""
    status = obj.get("status", {})
    reason = (find_condition(obj, PROGRESSING) or {}).get("reason", "")
    time = parse_time(status.get("progressTime")) or now
    done = sum(view.serves and view.has_revision(goal.target) for view in views)
    same = status.get("updateRevision") == goal.target
    text = f"{done} instances serve at revision {goal.target}"
    if (same and reason == "Complete") or _complete(goal, views):
        return Progress(time if same else now, done, Verdict(True, "Complete", f"revision {goal.target} is rolled out"))
    if goal.paused:
        return Progress(time, done, Verdict(True, "Paused", f"{text}; set spec.rollout.paused to false to go on"))
    time = min(time, now)  # after a clock was set back it counts anew
    if not same or reason == "Paused" or done > int(status.get("updatedReadyReplicas", 0)):
        time = now
    text = f"{text}; {hindrance}" if hindrance else text
    if seconds_since(time, now) >= pace.progress_deadline_seconds:
        text = f"no step for {pace.progress_deadline_seconds} s; {text}"
        return Progress(time, done, Verdict(False, "ProgressDeadlineExceeded", text))
    return Progress(time, done, Verdict(True, "Progressing", text))


def _complete(goal: Goal, views: Sequence[InstanceView]) -> bool:
    mine = [view for view in views if view.replica < goal.replicas]
    over = any(view.holds_dies for view in views if view.replica >= goal.replicas)
    return not over and all(view.serves and goal.fits(view.replica, view.revision) for view in mine)
