"""What a deleted TaskExecutor leaves behind goes at once; what was orphaned on purpose stays."""

from typing import Any

from xdeepserve_operator.api import names
from xdeepserve_operator.controllers.sweeping import sweep
from xdeepserve_operator.runtime.store import Store


class Recorder:
    """A cluster that only takes deletions of collections; those on the server ``slow`` run out of time."""

    def __init__(self) -> None:
        self.deleted: list[tuple[str, str, str]] = []

    async def delete_all(self, kind: str, namespace: str, labels: dict[str, str], fields: dict[str, str]) -> None:
        assert namespace == "n"
        assert fields.keys() == {{"Pod": "spec.nodeName", "DPGroup": "spec.node"}[kind]}
        (life,), (node,) = labels.values(), fields.values()
        if node == "slow":
            raise TimeoutError
        self.deleted.append((kind, life, node))


def make(
    kind: str, name: str, *owners: str, life: str = "first", node: str = "", leaving: bool = False
) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "n",
        "uid": name,
        "resourceVersion": "1",
        "labels": {names.LABEL_EXECUTOR: "te", names.LABEL_EXECUTOR_UID: life},
        "ownerReferences": [{"kind": owner, "name": "x", "uid": "y"} for owner in owners],
    }
    return {
        "kind": kind,
        "spec": {"nodeName": node, "node": node},
        "metadata": metadata | ({"deletionTimestamp": "now"} if leaving else {}),
    }


async def swept(*objects: dict[str, Any]) -> list[tuple[str, str, str]]:
    store, cluster = Store(), Recorder()
    for obj in objects:
        store.put(obj["kind"], obj)
    await sweep(store, cluster, "n", "te")  # type: ignore[arg-type]
    return cluster.deleted


async def test_what_a_deleted_executor_had_goes_a_server_at_a_time() -> None:
    assert await swept(
        make("DPGroup", "g0", "TaskExecutor", node="s0"),
        make("Pod", "engine-0", "DPGroup", node="s0"),
        make("DPGroup", "g1", "TaskExecutor", node="s0"),
        make("Pod", "engine-1", "DPGroup", node="s0"),
        make("Pod", "engine-2", "DPGroup", node="s1"),
        make("Pod", "shell", "TaskExecutor"),
    ) == [("DPGroup", "first", "s0"), ("Pod", "first", ""), ("Pod", "first", "s0"), ("Pod", "first", "s1")]


async def test_what_takes_too_long_is_left_to_the_garbage_collector() -> None:
    assert await swept(
        make("Pod", "engine-0", "DPGroup", node="slow"), make("Pod", "engine-1", "DPGroup", node="s1")
    ) == [("Pod", "first", "s1")]


async def test_what_ends_already_is_not_ended_again() -> None:
    assert await swept(make("Pod", "ending", "DPGroup", leaving=True)) == []


async def test_a_life_with_orphans_is_left_alone_and_another_is_not() -> None:
    assert await swept(
        make("DPGroup", "g0"),
        make("Pod", "engine-0", "DPGroup"),
        make("DPGroup", "g1", "TaskExecutor", life="second", node="s1"),
        make("Pod", "engine-1", "DPGroup", life="second"),
    ) == [("DPGroup", "second", "s1"), ("Pod", "second", "")]


async def test_what_nobody_labelled_is_not_swept() -> None:
    assert await swept(make("Pod", "foreign", "DPGroup", life="")) == []
