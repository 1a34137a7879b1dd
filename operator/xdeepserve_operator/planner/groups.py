"""What decisions need to know of a DPGroup: where a data-parallel group was placed, and which attempt runs there."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from xdeepserve_operator.api.v1alpha1.base import Chip
from xdeepserve_operator.api.v1alpha1.update import LeaveReason
from xdeepserve_operator.planner.conditions import parse_time
from xdeepserve_operator.planner.memory import remembered

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Departure:
    """Why and since when a group's instance leaves."""

    reason: LeaveReason
    since: datetime


@dataclass(frozen=True, slots=True)
class GroupView:
    """A DPGroup's spec and name. The object exists exactly as long as its dies are reserved.

    ``leaving``: its instance finishes what it has. ``deleted``: its name is free only once it is gone.
    """

    namespace: str
    name: str
    executor: str
    replica: int
    index: int
    dies: int
    chip: Chip
    node: str
    attempt: int
    revision: str
    deleted: bool
    leaving: Departure | None = None
    created: datetime = _LONG_AGO

    @property
    def instance(self) -> tuple[str, str, int]:
        """Namespace, TaskExecutor and replica it belongs to."""
        return self.namespace, self.executor, self.replica

    @property
    def preempted(self) -> bool:
        """Whether its dies are meant for somebody else."""
        return self.leaving is not None and self.leaving.reason == "Preempted"


@remembered
def view_group(group: Mapping[str, Any]) -> GroupView:
    """Reads a DPGroup."""
    metadata, spec = group["metadata"], group["spec"]
    return GroupView(
        namespace=metadata["namespace"],
        name=metadata["name"],
        executor=spec["executorRef"]["name"],
        replica=spec["replica"],
        index=spec["index"],
        dies=spec["dies"],
        chip=cast("Chip", spec["chip"]),
        node=spec["node"],
        attempt=spec.get("attempt", 0),
        revision=spec["revision"],
        deleted="deletionTimestamp" in metadata,
        leaving=_departure(spec.get("leaving")),
        created=parse_time(metadata.get("creationTimestamp")) or _LONG_AGO,
    )


def _departure(leaving: Mapping[str, Any] | None) -> Departure | None:
    if leaving is None:
        return None
    return Departure(cast("LeaveReason", leaving["reason"]), parse_time(leaving["since"]) or _LONG_AGO)
