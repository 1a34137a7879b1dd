from datetime import datetime, timedelta
from typing import Any

from xdeepserve_operator.api.v1alpha1.update import Pace, UpdateStrategy
from xdeepserve_operator.planner.conditions import format_time
from xdeepserve_operator.planner.goal import Goal
from xdeepserve_operator.planner.instance import InstanceView
from xdeepserve_operator.planner.progress import progress_of

from .builders import NOW, instance, status

PACE = Pace(progress_deadline_seconds=60)


def serving(replica: int, revision: str = "new") -> InstanceView:
    return instance(status(0, epoch=1, state="Serving"), epoch=1, ready=True, replica=replica, revision=revision)


def executor(
    revision: str = "new", ready: int = 0, seconds: float = 0.0, reason: str = "Progressing"
) -> dict[str, Any]:
    """A TaskExecutor whose last step towards ``revision`` was ``seconds`` ago."""
    return {
        "metadata": {"generation": 1},
        "status": {
            "updateRevision": revision,
            "updatedReadyReplicas": ready,
            "progressTime": format_time(NOW - timedelta(seconds=seconds)),
            "conditions": [{"type": "Progressing", "status": "True", "reason": reason}],
        },
    }


def judge(
    obj: dict[str, Any], *views: InstanceView, replicas: int = 2, paused: bool = False, partition: int = 0
) -> tuple[str, datetime]:
    goal = Goal(replicas, "new", "old", UpdateStrategy(partition=partition), paused)
    found = progress_of(obj, goal, views, PACE, "", NOW)
    assert found.verdict.holds is (found.verdict.reason != "ProgressDeadlineExceeded")
    return found.verdict.reason, found.time


def test_a_new_target_and_a_replica_more_are_steps() -> None:
    assert judge({"metadata": {}}, serving(0, "old")) == ("Progressing", NOW)
    assert judge(executor("older", seconds=50), serving(0, "old")) == ("Progressing", NOW)
    assert judge(executor(ready=0, seconds=50), serving(0), serving(1, "old")) == ("Progressing", NOW)
    assert judge(executor(ready=1, seconds=50), serving(0), serving(1, "old"))[1] == NOW - timedelta(seconds=50)


def test_without_a_step_the_deadline_passes_and_the_next_step_makes_up_for_it() -> None:
    late = executor(ready=1, seconds=61)
    assert judge(late, serving(0), serving(1, "old"))[0] == "ProgressDeadlineExceeded"
    assert judge(late, serving(0), serving(1), serving(2, "old"), replicas=3) == ("Progressing", NOW)


def test_losing_a_replica_is_no_step() -> None:
    assert judge(executor(ready=2, seconds=50), serving(0), serving(1, "old"))[1] < NOW


def test_a_pause_stops_the_clock_and_its_end_starts_it_anew() -> None:
    views = serving(0), serving(1, "old")
    assert judge(executor(ready=1, seconds=500), *views, paused=True)[0] == "Paused"
    assert judge(executor(ready=1, seconds=500, reason="Paused"), *views) == ("Progressing", NOW)


def test_complete_is_when_all_are_as_they_shall_be_and_no_surge_is_left() -> None:
    assert judge(executor(ready=2), serving(0), serving(1))[0] == "Complete"
    assert judge(executor(ready=2), serving(0, "old"), serving(1), partition=1)[0] == "Complete"
    assert judge(executor(ready=2), serving(0), serving(1), serving(2))[0] == "Progressing"
    assert judge(executor(), replicas=0)[0] == "Complete"


def test_what_is_lost_after_completion_is_a_fault_and_no_rollout() -> None:
    done = executor(ready=2, seconds=5000, reason="Complete")
    assert judge(done, serving(0))[0] == "Complete"
