"""Deletes the groups and pods of a TaskExecutor that is gone, all at once.

The garbage collector would do it by itself, one generation after another: the DPGroups first, and their pods when it
has noticed that each group is gone. This only saves the time, so a deletion that takes too long is left to it, as
everything is without the operator. Pods go side by side, each by its uid, for there the time is; groups, which nobody
waits for, go as a collection, by a label with the uid of their TaskExecutor's life: a new life of the name loses
nothing. Objects that were orphaned on purpose have lost their owner references before their owner goes; where one has,
all of that life is left to the garbage collector, which knows who is meant.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from xdeepserve_operator.api import names
from xdeepserve_operator.controllers.objects import label, leaving, together
from xdeepserve_operator.controllers.ports import Cluster, Object, Store


async def sweep(store: Store, cluster: Cluster, namespace: str, executor: str) -> None:
    """For a TaskExecutor that the store no longer shows."""
    pods, groups = (_left(store, kind, namespace, executor) for kind in ("Pod", "DPGroup"))
    spared = {"", *(_life(obj) for obj in (*pods, *groups) if not obj["metadata"].get("ownerReferences"))}
    doomed = [pod for pod in pods if _life(pod) not in spared]
    async with asyncio.TaskGroup() as work:
        work.create_task(together(partial(cluster.delete, "Pod"), doomed))
        work.create_task(_delete_groups(cluster, namespace, {_life(group) for group in groups} - spared))


async def _delete_groups(cluster: Cluster, namespace: str, lives: Iterable[str]) -> None:
    with suppress(TimeoutError):
        for life in lives:
            await cluster.delete_all("DPGroup", namespace, {names.LABEL_EXECUTOR_UID: life})


def _left(store: Store, kind: str, namespace: str, executor: str) -> list[Object]:
    found = store.list(kind, namespace, {names.LABEL_EXECUTOR: executor})
    return [obj for obj in found if not leaving(obj)]


def _life(obj: Object) -> str:
    return label(obj, names.LABEL_EXECUTOR_UID)
