"""What decisions need to know of a DPGroup: where a data-parallel group was placed, and which attempt runs there."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from xdeepserve_operator.api.v1alpha1.base import Chip


@dataclass(frozen=True, slots=True)
class GroupView:
    """A DPGroup's spec and name. The object exists exactly as long as its dies are reserved.

    ``leaving``: it is being deleted, and its name is free only once it is gone.
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
    leaving: bool


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
        leaving="deletionTimestamp" in metadata,
    )
