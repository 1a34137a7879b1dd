"""Small questions that reconcilers ask of plain objects."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import TypeVar

from pydantic import ValidationError

from xdeepserve_operator.controllers.ports import Cluster, Object, Store
from xdeepserve_operator.planner.conditions import READY, condition_for, find_condition
from xdeepserve_operator.planner.pods import PodView
from xdeepserve_operator.planner.readiness import Verdict
from xdeepserve_operator.planner.warm import Idle

A = TypeVar("A")
_ON_THE_WAY = frozenset({"Starting", "Unschedulable", "Joining", "RoutesPending"})  # the scheduler tells of its own
_TOLD_BY_READY = _ON_THE_WAY | {"Faulted", "Degraded"}
REFUSED_SECONDS = 5.0
CONCURRENT_WRITES = 32  # enough to keep an API server busy, few enough to leave it to others


def leaving(obj: Object) -> bool:
    """Whether the object is being deleted."""
    return "deletionTimestamp" in obj["metadata"]


def label(obj: Object, name: str) -> str:
    """A label's value; empty when absent."""
    value: str = (obj["metadata"].get("labels") or {}).get(name, "")
    return value


def controlled_by(obj: Object, owner: Object) -> bool:
    """Whether ``owner`` is the controlling owner of ``obj``."""
    references = obj["metadata"].get("ownerReferences") or ()
    return any(one.get("controller") and one.get("uid") == owner["metadata"]["uid"] for one in references)


class NameTaken(ValueError):
    """A child's name belongs to somebody else's object."""


def complaint(error: ValueError) -> Verdict:
    """What to say about an object that cannot be worked on: its spec, its Secret or a child's name is wrong."""
    if isinstance(error, ValidationError):
        detail = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(map(str, ("spec", *detail["loc"])))
        return Verdict(False, "InvalidSpec", f"{path}: {detail['msg']}")
    return Verdict(False, "NameTaken" if isinstance(error, NameTaken) else "InvalidToken", str(error))


def announce(cluster: Cluster, obj: Object, verdict: Verdict) -> None:
    """An event when Ready changes its reason; the steps of a start, or back from a fault, are none of their own."""
    before = (find_condition(obj, READY) or {}).get("reason")
    if before == verdict.reason or (before in _TOLD_BY_READY and verdict.reason in _ON_THE_WAY):
        return
    warning = not verdict.holds and verdict.reason not in {*_ON_THE_WAY, "Updating"}
    cluster.event(obj, verdict.reason, verdict.message, warning=warning)


async def refuse(cluster: Cluster, kind: str, obj: Object, error: ValueError, now: datetime) -> float | None:
    """Says in Ready why an object cannot be worked on; the rest of its status, and its children, stay as they are.

    Seconds until it is worth another look: no event tells that a Secret was mended or a name given up, while only a
    new spec, which is one, can help a wrong one.
    """
    verdict = complaint(error)
    announce(cluster, obj, verdict)
    status = obj.get("status", {})
    others = [one for one in status.get("conditions") or () if one["type"] != READY]
    ready = condition_for(obj, READY, False, verdict.reason, verdict.message, now)
    await cluster.update_status(kind, obj, {**status, "conditions": [ready, *others]})
    return None if isinstance(error, ValidationError) else REFUSED_SECONDS


async def delete_pod(store: Store, cluster: Cluster, pod: PodView | Idle, grace_seconds: int | None = None) -> None:
    """Deletes a pod that was seen, if it is still there."""
    obj = store.get("Pod", pod.namespace, pod.name)
    if obj is not None:
        await cluster.delete("Pod", obj, grace_seconds=grace_seconds)


async def together(work: Callable[[A], Awaitable[object]], items: Iterable[A]) -> None:
    """Does ``work`` on all items side by side, a bounded number at once; the first failure stops the rest."""
    gate = asyncio.Semaphore(CONCURRENT_WRITES)

    async def one(item: A) -> None:
        async with gate:
            await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for item in items:
                group.create_task(one(item))
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
