"""What ``rollout`` knows of a ModelDeployment's revisions: a list, one of them, the difference of two, the way back.

Pure: everything is read from the ModelDeployment and its ControllerRevisions. Its own revisions are told from those of
its TaskExecutors, which carry the same label, by their owner.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xdeepserve_cli.place import CliError
from xdeepserve_operator.api.names import ANNOTATION_CHANGE_CAUSE
from xdeepserve_operator.api.v1alpha1.deployment import ModelDeploymentSpec
from xdeepserve_operator.controllers.objects import controlled_by
from xdeepserve_operator.planner.history import differences, restored
from xdeepserve_operator.resources.revision import change_cause, deployment_data
from xdeepserve_operator.runtime.kube import Object


@dataclass(frozen=True)
class Revision:
    """One revision: its number, why it was made if anybody said so, and what it holds."""

    number: int
    cause: str
    created: str
    data: Mapping[str, Any]

    def document(self) -> dict[str, Any]:
        """The form for JSON and YAML."""
        return {
            "revision": self.number,
            "changeCause": self.cause,
            "created": self.created,
            "data": self.data,
        }


def revisions_of(deployment: Object, stored: Iterable[Object]) -> list[Revision]:
    """The deployment's revisions, the oldest first."""
    found = [
        Revision(
            int(one["revision"]),
            change_cause(one),
            str(one["metadata"].get("creationTimestamp", "")),
            one.get("data") or {},
        )
        for one in stored
        if controlled_by(one, deployment)
    ]
    return sorted(found, key=lambda revision: revision.number)


def pick(revisions: Sequence[Revision], number: int | None, default: int) -> Revision:
    """The revision of a number, or the one at place ``default`` of the list (-1: newest); CliError if there is none."""
    if number is None:
        if len(revisions) < -default:
            raise CliError("there is no earlier revision; history: " + told(revisions))
        return revisions[default]
    found = next((one for one in revisions if one.number == number), None)
    if found is None:
        raise CliError(f"revision {number} is not in the history: {told(revisions)}")
    return found


def told(revisions: Sequence[Revision]) -> str:
    """The numbers that exist, for a message."""
    return ", ".join(str(one.number) for one in revisions) or "nothing is recorded yet"


def changed(old: Revision | None, new: Revision) -> list[str]:
    """Paths of the fields in which a revision differs from the one before it."""
    return [] if old is None else [path for path, _, _ in differences(old.data, new.data)]


def way_back(deployment: Object, revision: Revision) -> Object | None:
    """The merge patch that takes the deployment back to ``revision``; None when it is there already.

    It holds only as long as the deployment is the one that was read. CliError when it may not go back now.
    """
    metadata, spec = deployment["metadata"], deployment["spec"]
    if (spec.get("rollout") or {}).get("paused"):
        name = metadata["name"]
        raise CliError(f"cannot go back while paused; run 'xdeepserve rollout resume {name}' first, then try again")
    back = restored(spec, revision.data)
    if _content(back) == _content(spec):
        return None
    return {
        "metadata": {
            "resourceVersion": metadata["resourceVersion"],
            "annotations": {ANNOTATION_CHANGE_CAUSE: revision.cause or None},
        },
        "spec": {"model": back["model"], "roles": back["roles"]},
    }


def _content(spec: Mapping[str, Any]) -> dict[str, Any]:
    return deployment_data(ModelDeploymentSpec.model_validate(spec))
