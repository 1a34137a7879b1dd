"""Deletes the groups and pods of a TaskExecutor that is gone, all at once.

The garbage collector would do it by itself, one generation after another and one object after another: the DPGroups
first, and their pods when it has noticed that each group is gone. This only saves the time; without the operator the
same goes later. What is deleted carries the uid of the TaskExecutor's life in a label, so a new life of the name loses
nothing. Objects that were orphaned on purpose have lost their owner references before their owner goes; where one has,
all of that life is left to the garbage collector, which knows who is meant.
"""

import asyncio

from xdeepserve_operator.api import names
from xdeepserve_operator.controllers.objects import label, leaving
from xdeepserve_operator.controllers.ports import Cluster, Object, Store


async def sweep(store: Store, cluster: Cluster, namespace: str, executor: str) -> None:
    """For a TaskExecutor that the store no longer shows."""
    left = {kind: _left(store, kind, namespace, executor) for kind in ("Pod", "DPGroup")}
    lives = {_life(obj) for objects in left.values() for obj in objects}
    orphaned = {
        _life(obj) for objects in left.values() for obj in objects if not obj["metadata"].get("ownerReferences")
    }
    async with asyncio.TaskGroup() as group:
        for life in sorted(lives - orphaned - {""}):
            for kind, objects in left.items():
                if any(_life(obj) == life for obj in objects):
                    group.create_task(cluster.delete_all(kind, namespace, {names.LABEL_EXECUTOR_UID: life}))


def _left(store: Store, kind: str, namespace: str, executor: str) -> list[Object]:
    found = store.list(kind, namespace, {names.LABEL_EXECUTOR: executor})
    return [obj for obj in found if not leaving(obj)]


def _life(obj: Object) -> str:
    return label(obj, names.LABEL_EXECUTOR_UID)
