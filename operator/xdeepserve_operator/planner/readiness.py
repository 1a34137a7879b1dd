"""Ready, in one word and one sentence, for TaskExecutors.

``Ready`` holds when every wanted replica runs the revision it shall have and serves. Otherwise the worst replica gives
the reason:

| reason           | meaning                                                                         |
|------------------|---------------------------------------------------------------------------------|
| ModelLoadFailed  | an engine says that its checkpoint or configuration cannot be used              |
| InsufficientDies | a replica has no place for lack of dies, or its gang gave its dies back         |
| Unschedulable    | a replica has its place, and the scheduler does not let a pod go there          |
| Faulted          | a replica that served lost something, and no other replica serves               |
| Degraded         | the same, while another replica serves                                          |
| Updating         | a replica runs an old revision, or its replacement is on the way                |
| Starting         | the gang is not complete; pods are being made, started, loaded                  |
| Joining          | the membership is out, not every rank serves in it                              |

A replica that comes up for the first time is never Faulted: whatever it still lacks, it lost nothing.
Messages hold no running numbers (times, counts of seconds), so that the same state is the same text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdeepserve_operator.planner.gang import Waiting
from xdeepserve_operator.planner.goal import Goal
from xdeepserve_operator.planner.instance import InstanceView
from xdeepserve_operator.planner.membership import Wait, membership_for
from xdeepserve_operator.planner.recovery import UNSCHEDULABLE

_AFTER_SERVICE = frozenset({"Ready", "Degraded", "Faulted"})
_WORST_FIRST = (
    "ModelLoadFailed",
    "InsufficientDies",
    "Unschedulable",
    "Faulted",
    "Degraded",
    "Updating",
    "Starting",
    "Joining",
)
_WAIT_REASONS = ("GaveBack", "InsufficientDies", "Placing")
_BEING_PLACED = Waiting("being placed", "Placing")


@dataclass(frozen=True, slots=True)
class Verdict:
    """A condition without its times."""

    holds: bool
    reason: str
    message: str


def executor_verdict(views: Sequence[InstanceView], goal: Goal, waiting: Mapping[int, Waiting], before: str) -> Verdict:
    """Ready of a TaskExecutor.

    ``waiting`` says for replicas without room what is missing; ``before`` is the reason of the condition so far: while
    a replacement starts, an update goes on, and only what served can have to come back.
    """
    wanted = goal.replicas
    if wanted == 0:
        return Verdict(True, "Ready", "no replica is asked for")
    mine = {view.replica: view for view in views if view.replica < wanted}
    serving = sum(view.serves for view in mine.values())
    returning = before in _AFTER_SERVICE
    stages = [_stage(replica, mine.get(replica), goal, waiting, returning) for replica in range(wanted)]
    late = [stage for stage in stages if stage is not None]
    if not late:
        return Verdict(True, "Ready", f"{wanted} of {wanted} instances serve")
    worst = min(late, key=lambda stage: _WORST_FIRST.index(stage.reason))
    reason = worst.reason
    if reason == "Faulted" and serving:
        reason = "Degraded"
    if before == "Updating" and reason in ("Starting", "Joining"):
        reason = "Updating"
    return Verdict(False, reason, f"{serving} of {wanted} instances serve; {worst.message}")


def placed_verdict(views: Sequence[InstanceView], wanted: int, waiting: Mapping[int, Waiting]) -> Verdict:
    """Placed of a TaskExecutor: whether every wanted replica holds its dies."""
    held = sum(view.placed for view in views if view.replica < wanted)
    gave_back = any(one.reason == "GaveBack" for one in waiting.values())
    if held >= wanted and not gave_back:
        return Verdict(True, "Placed", f"{held} of {wanted} instances hold their dies")
    mine = [one for replica, one in waiting.items() if replica < wanted]
    worst = min(mine, key=lambda one: (_WAIT_REASONS.index(one.reason), one.message), default=_BEING_PLACED)
    return Verdict(False, worst.reason, f"{held} of {wanted}; {worst.message}")


def _stage(
    replica: int, view: InstanceView | None, goal: Goal, waiting: Mapping[int, Waiting], returning: bool
) -> Verdict | None:
    """What keeps a replica from being ready; None when nothing does."""
    if view is None or not view.placed:
        if view is not None and view.draining:
            return Verdict(False, "Updating", f"{view.name}: old pods are ending")
        if replica in waiting:
            reason = "Starting" if waiting[replica].reason == "Placing" else "InsufficientDies"
            return Verdict(False, reason, waiting[replica].message)
        return Verdict(False, "Starting", f"replica {replica} is being placed")
    serves = view.ready
    for rank in view.ranks:
        if not serves and rank.pod is not None and rank.pod.error is not None:
            return Verdict(False, "ModelLoadFailed", f"{rank.pod.name}: {rank.pod.error}")
    if view.faults:
        text = view.faults[0].message + (f"; {waiting[replica].message}" if replica in waiting else "")
        unschedulable = all(fault.reason == UNSCHEDULABLE for fault in view.faults)
        return Verdict(False, UNSCHEDULABLE if unschedulable else "Faulted", f"{view.name}: {text}")
    if view.leaving is not None:
        return Verdict(False, "Updating", f"{view.name} finishes its requests before it is replaced")
    if not goal.fits(replica, view.revision):
        pause = "; the rollout is paused" if goal.paused else ""
        return Verdict(False, "Updating", f"{view.name} runs an old revision{pause}")
    if serves:
        return None
    # Nothing is remembered here on purpose: what is asked is only whether a membership could be had now.
    step = membership_for(view, last=None)
    text = step.reason if isinstance(step, Wait) else "not every rank serves yet"
    pods = [*(rank.pod for rank in view.ranks), view.shell]
    text = next((f"{pod.name}: {pod.stuck}" for pod in pods if pod is not None and pod.stuck), text)
    waits = next((pod.name for pod in pods if pod is not None and pod.unschedulable_since is not None), None)
    if waits is not None:
        return Verdict(False, UNSCHEDULABLE, f"{view.name}: the scheduler finds no server for {waits}")
    if view.epoch > 0 and returning:
        return Verdict(False, "Faulted", f"{view.name}: coming back, {text}")
    return Verdict(False, "Starting" if isinstance(step, Wait) else "Joining", f"{view.name}: {text}")
