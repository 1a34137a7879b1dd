"""What became of a FaultInjection: when its effect was seen and when all that it hit was whole again.

Both times are transition times of the hit TaskExecutors' Ready conditions, so they do not depend on when anybody
looked. The first effect is the earliest turn to False since the injection; recovery is the latest turn to True after
it, once all are True. An effect that was over before anybody looked leaves only the turn to True.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from xdeepserve_operator.planner.conditions import READY, find_condition, parse_time


@dataclass(frozen=True, slots=True)
class Injury:
    """Times of one FaultInjection; None for what did not happen yet."""

    observed: datetime | None
    recovered: datetime | None


def assess(injected: datetime, observed: datetime | None, executors: Sequence[Mapping[str, Any]]) -> Injury:
    """What the TaskExecutors that were hit show now; ``observed`` is what is already known."""
    conditions = [find_condition(executor, READY) or {} for executor in executors]
    down = [_since(condition) for condition in conditions if condition.get("status") != "True"]
    back = [moment for condition in conditions if (moment := _since(condition)) is not None and moment >= injected]
    turns = [moment for moment in down if moment is not None] if down else back
    if observed is None and turns:
        observed = max(injected, min(turns))
    if observed is None or down or not conditions:
        return Injury(observed, None)
    return Injury(observed, max([observed, *back]))


def milliseconds(injected: datetime, recovered: datetime) -> int:
    """Length of a recovery."""
    return max(0, (recovered - injected) // timedelta(milliseconds=1))


def _since(condition: Mapping[str, Any]) -> datetime | None:
    return parse_time(condition.get("lastTransitionTime"))
