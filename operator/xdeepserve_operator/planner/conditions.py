"""Conditions as in the Kubernetes API conventions, and the timestamps they carry.

A condition's ``lastTransitionTime`` moves only when its ``status`` does, so the same facts always give the same
conditions and an idle operator writes nothing. Times are UTC with milliseconds, so that recovery can be timed.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

MESSAGE_LIMIT = 1024
READY = "Ready"


def format_time(moment: datetime) -> str:
    """RFC 3339 in UTC with milliseconds: ``2025-01-31T08:00:00.250Z``."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(text: str | None) -> datetime | None:
    """The moment an RFC 3339 string names; None when it is absent or no such string."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def seconds_since(moment: datetime, now: datetime) -> float:
    """How long ago a stored moment was; never negative.

    One that lies ahead means that the clock was set back since: it counts as its distance, so that what waits for a
    deadline waits longer by no more than the jump, and not for ever when nobody can tell how far it was.
    """
    return abs((now - moment).total_seconds())


def find_condition(obj: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """The condition of type ``kind`` in an object's status."""
    conditions: Iterable[Mapping[str, Any]] = obj.get("status", {}).get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == kind), None)


def is_true(obj: Mapping[str, Any], kind: str) -> bool:
    """Whether the condition holds, judged on the current generation of the object's spec."""
    condition = find_condition(obj, kind)
    if condition is None or condition.get("status") != "True":
        return False
    return int(condition.get("observedGeneration", 0)) >= int(obj["metadata"].get("generation", 0))


def condition_for(
    obj: Mapping[str, Any], kind: str, holds: bool, reason: str, message: str, now: datetime
) -> dict[str, Any]:
    """The condition to write into ``obj``'s status; keeps the old transition time unless the status changes."""
    status = "True" if holds else "False"
    before = find_condition(obj, kind)
    unchanged = before is not None and before.get("status") == status
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 1] + "…",
        "lastTransitionTime": before["lastTransitionTime"] if before and unchanged else format_time(now),
        "observedGeneration": int(obj["metadata"].get("generation", 0)),
    }
