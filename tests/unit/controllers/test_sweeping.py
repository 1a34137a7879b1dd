"""What a deleted TaskExecutor leaves behind goes at once; what was orphaned on purpose stays."""

from typing import Any

from xdeepserve_operator.api import names
from xdeepserve_operator.controllers.sweeping import sweep
from xdeepserve_operator.runtime.store import Store


class Recorder:
    """A cluster that only takes deletions; ``slow`` ones of collections run out of time."""

    def __init__(self, *, slow: bool = False) -> None:
        self.deleted: list[str] = []
        self._slow = slow

    async def delete(self, kind: str, obj: dict[str, Any], **_: Any) -> None:
        self.deleted.append(obj["metadata"]["name"])

    async def delete_all(self, kind: str, namespace: str, labels: dict[str, str]) -> None:
        assert (kind, namespace, labels.keys()) == ("DPGroup", "n", {names.LABEL_EXECUTOR_UID})
        if self._slow:
            raise TimeoutError
        self.deleted.append(f"groups of {labels[names.LABEL_EXECUTOR_UID]}")


def make(kind: str, name: str, *owners: str, life: str = "first", leaving: bool = False) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "n",
        "uid": name,
        "resourceVersion": "1",
        "labels": {names.LABEL_EXECUTOR: "te", names.LABEL_EXECUTOR_UID: life},
        "ownerReferences": [{"kind": owner, "name": "x", "uid": "y"} for owner in owners],
    }
    return {"kind": kind, "metadata": metadata | ({"deletionTimestamp": "now"} if leaving else {})}


async def swept(*objects: dict[str, Any], slow: bool = False) -> list[str]:
    store, cluster = Store(), Recorder(slow=slow)
    for obj in objects:
        store.put(obj["kind"], obj)
    await sweep(store, cluster, "n", "te")  # type: ignore[arg-type]
    return sorted(cluster.deleted)


FIRST = (
    make("DPGroup", "g0", "TaskExecutor"),
    make("DPGroup", "g1", "TaskExecutor"),
    make("Pod", "engine-0", "DPGroup"),
    make("Pod", "shell", "TaskExecutor"),
)


async def test_engines_shells_and_groups_of_a_deleted_executor_go() -> None:
    assert await swept(*FIRST) == ["engine-0", "groups of first", "shell"]


async def test_a_collection_that_takes_too_long_is_left_to_the_garbage_collector() -> None:
    assert await swept(*FIRST, slow=True) == ["engine-0", "shell"]


async def test_what_ends_already_is_not_ended_again() -> None:
    assert await swept(make("Pod", "ending", "DPGroup", leaving=True)) == []


async def test_a_life_with_orphans_is_left_alone_and_another_is_not() -> None:
    assert await swept(
        make("DPGroup", "g0"),
        make("Pod", "engine-0", "DPGroup"),
        make("DPGroup", "g1", "TaskExecutor", life="second"),
        make("Pod", "engine-1", "DPGroup", life="second"),
    ) == ["engine-1", "groups of second"]


async def test_what_nobody_labelled_is_not_swept() -> None:
    assert await swept(make("Pod", "foreign", "DPGroup", life="")) == []
