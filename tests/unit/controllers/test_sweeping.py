"""What a deleted TaskExecutor leaves behind goes at once; what was orphaned on purpose stays."""

from typing import Any

from xdeepserve_operator.api import names
from xdeepserve_operator.controllers.sweeping import sweep
from xdeepserve_operator.runtime.store import Store


class Recorder:
    """A cluster that only takes deletions."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    async def delete(self, kind: str, obj: dict[str, Any], **_: Any) -> None:
        self.deleted.append(obj["metadata"]["name"])


def make(kind: str, name: str, *owners: str, group: str = "", leaving: bool = False) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "n",
        "uid": name,
        "resourceVersion": "1",
        "labels": {names.LABEL_EXECUTOR: "te", names.LABEL_GROUP: group},
        "ownerReferences": [{"kind": owner, "name": "x", "uid": "y"} for owner in owners],
    }
    return {"kind": kind, "metadata": metadata | ({"deletionTimestamp": "now"} if leaving else {})}


async def swept(*objects: dict[str, Any]) -> list[str]:
    store, cluster = Store(), Recorder()
    for obj in objects:
        store.put(obj["kind"], obj)
    await sweep(store, cluster, "n", "te")  # type: ignore[arg-type]
    return cluster.deleted


async def test_engines_and_shells_of_a_deleted_executor_go():
    assert await swept(
        make("DPGroup", "g0", "TaskExecutor"),
        make("Pod", "engine-0", "DPGroup", group="g0"),
        make("Pod", "engine-1", "DPGroup", group="gone"),
        make("Pod", "shell", "TaskExecutor"),
    ) == ["engine-0", "engine-1", "shell"]


async def test_what_was_orphaned_and_what_ends_already_is_left_alone():
    assert (
        await swept(
            make("DPGroup", "g0"),
            make("Pod", "engine-0", "DPGroup", group="g0"),
            make("Pod", "engine-1", group="gone"),
            make("Pod", "shell"),
            make("Pod", "ending", "DPGroup", group="gone", leaving=True),
        )
        == []
    )
