"""Times as Kubernetes writes them. Inside the agent a moment is a float: seconds since the epoch, UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(moment: float) -> str:
    """Whole seconds, the precision of most times in the API."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(moment: float) -> str:
    """Microseconds, as in a Lease."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_rfc3339(text: str) -> float:
    """Raises ValueError for anything else."""
    return datetime.fromisoformat(text).timestamp()
