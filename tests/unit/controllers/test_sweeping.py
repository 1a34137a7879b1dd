"""What a deleted TaskExecutor leaves behind goes at once; what was orphaned on purpose stays."""

from typing import Any

from xdeepserve_operator.api import names
from xdeepserve_operator.controllers.sweeping import sweep
from xdeepserve_operator.runtime.store import Store


class Recorder:
    """A cluster that only takes deletions."""

    def __init__(self) -> None:
        self.deleted: list[tuple[str, str]] = []

    async def delete_all(self, kind: str, namespace: str, labels: dict[str, str]) -> None:
        assert (namespace, labels.keys()) == ("n", {names.LABEL_EXECUTOR_UID})
        self.deleted.append((kind, labels[names.LABEL_EXECUTOR_UID]))


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


async def swept(*objects: dict[str, Any]) -> list[tuple[str, str]]:
    store, cluster = Store(), Recorder()
    for obj in objects:
        store.put(obj["kind"], obj)
    await sweep(store, cluster, "n", "te")  # type: ignore[arg-type]
    return cluster.deleted


async def test_engines_shells_and_groups_of_a_deleted_executor_go_in_a_request_a_kind() -> None:
    assert await swept(
        make("DPGroup", "g0", "TaskExecutor"),
        make("DPGroup", "g1", "TaskExecutor"),
        make("Pod", "engine-0", "DPGroup"),
        make("Pod", "shell", "TaskExecutor"),
    ) == [("Pod", "first"), ("DPGroup", "first")]


async def test_every_life_is_named_by_itself() -> None:
    assert await swept(make("Pod", "engine-0", "DPGroup"), make("Pod", "engine-1", "DPGroup", life="second")) == [
        ("Pod", "first"),
        ("Pod", "second"),
    ]


async def test_what_ends_already_is_not_ended_again() -> None:
    assert await swept(make("Pod", "ending", "DPGroup", leaving=True)) == []


async def test_a_life_with_orphans_is_left_to_the_garbage_collector() -> None:
    assert await swept(
        make("DPGroup", "g0"),
        make("Pod", "engine-0", "DPGroup"),
        make("Pod", "engine-1", "DPGroup", life="second"),
    ) == [("Pod", "second")]


async def test_what_nobody_labelled_is_not_swept() -> None:
    assert await swept(make("Pod", "foreign", "DPGroup", life="")) == []
