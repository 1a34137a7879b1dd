"""Which DP groups must get a new attempt: a new pod on another die.

The whole decision is one table, the first line that holds wins:

| what real machines show                                        | fault         | hardware dead |
|----------------------------------------------------------------|---------------|---------------|
| node gone, or nobody hears it, nor its engine                  | NodeLost      | yes           |
| a die of the pod is on the node's list of unhealthy ones       | DieUnhealthy  | yes           |
| pod is being deleted (evicted, drained, by hand)               | PodGone       | no            |
| pod ended for good                                             | PodFailed     | no            |
| engine exited because checkpoint or configuration is unusable  | none: another die would not help          |
| container runs, engine was heard, silent too long              | Hung          | no            |
| container down, engine was a member, silent too long           | Crashed       | no            |
| pod has waited too long for the scheduler                      | Unschedulable | no            |

A node that is silent while its engine answers has lost the API server only, or the API server was away: what serves is
left alone. An engine that loads on a busy machine may be silent for a while, so one that was never a member is given
longer. A container that dies before it ever joined is the kubelet's to start again, with its back-off: a new attempt
each time would be a storm. A pod that does not exist (yet) is no fault either: its group creates it.
"""

from dataclasses import dataclass
from datetime import datetime

from flowserve.wire import RankReport
from xdeepserve_operator.api import names
from xdeepserve_operator.planner.conditions import seconds_since
from xdeepserve_operator.planner.pods import PodView
from xdeepserve_operator.planner.servers import Health

UNSCHEDULABLE = "Unschedulable"


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait before silence counts, in seconds; ``starting``: of an engine that was never a member."""

    silent: float = 5.0
    starting: float = 30.0
    unschedulable: float = 30.0


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a DP group's attempt. ``dead``: nothing there will ever end by itself."""

    reason: str
    message: str
    dead: bool = False


def hardware_fault(pod: PodView, health: Health) -> Fault | None:
    """Whether the server or a die under a pod is gone."""
    if health.lost:
        return Fault("NodeLost", f"{pod.name}: node {pod.node} is lost", dead=True)
    if bad := sorted(pod.dies & health.unhealthy):
        dies = ", ".join(map(names.die_name, bad))
        return Fault("DieUnhealthy", f"{pod.name}: {dies} on {pod.node} is unhealthy", dead=True)
    return None


def judge(
    pod: PodView | None, health: Health | None, report: RankReport | None, patience: Patience, now: datetime
) -> Fault | None:
    """What is wrong with the current attempt of a group; ``health`` is its node's, None before it has one."""
    if pod is None:
        return None
    heard = report is not None and report.ever_heard and report.silent_seconds <= patience.silent
    if health is not None and (fault := hardware_fault(pod, health)) is not None and not (health.lost and heard):
        return fault
    if pod.terminating:
        return Fault("PodGone", f"{pod.name} is being deleted")
    if pod.terminal:
        return Fault("PodFailed", f"{pod.name} on {pod.node} ended with phase {pod.phase}")
    if pod.error is not None:
        return None
    if report is not None and report.ever_heard:
        member = report.status is not None and report.status.epoch > 0
        limit = patience.silent if member else patience.starting
        if report.silent_seconds > limit:
            if pod.running_since is None:
                if member:
                    return Fault("Crashed", f"{pod.name} on {pod.node} is down and was a member")
            elif seconds_since(pod.running_since, now) > limit:
                return Fault("Hung", f"{pod.name} on {pod.node} runs and does not answer")
    if pod.unschedulable_since is not None:
        waited = seconds_since(pod.unschedulable_since, now)
        if waited > patience.unschedulable:
            return Fault(UNSCHEDULABLE, f"{pod.name} does not get its dies from the scheduler")
    return None
