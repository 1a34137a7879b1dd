"""Watches one kind and lets the benchmark wait for a state of it, and read when things happened."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from xdeepserve_operator.planner.conditions import find_condition
from xdeepserve_operator.runtime.kube import KubeApi, Object
from xdeepserve_operator.runtime.reflector import Reflector
from xdeepserve_operator.runtime.resources import Resource


class Watched:
    """Objects by name; ``born`` holds when each was first seen, in seconds of the monotonic clock."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.born: dict[str, float] = {}
        self._news = asyncio.Event()

    def on_event(self, kind: str, obj: Object) -> None:
        """Takes an event of a reflector."""
        name = obj["metadata"]["name"]
        if kind == "DELETED":
            self.objects.pop(name, None)
            self.born.pop(name, None)
        else:
            self.objects[name] = obj
            self.born.setdefault(name, time.monotonic())
        self._news.set()

    async def until(self, holds: Callable[[], bool], what: str, timeout: float) -> None:
        """Returns when it holds; RuntimeError after ``timeout`` seconds."""
        try:
            async with asyncio.timeout(timeout):
                while not holds():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise RuntimeError(f"not within {timeout:.0f} s: {what} ({len(self.objects)} objects)") from None

    def ready(self, name: str) -> bool:
        """Whether the object is Ready; a condition that names a generation must name the newest."""
        obj = self.objects.get(name, {})
        ready = find_condition(obj, "Ready") or {}
        newest = obj.get("metadata", {}).get("generation")
        return ready.get("status") == "True" and ready.get("observedGeneration", newest) == newest

    def ready_count(self) -> int:
        """How many are Ready."""
        return sum(self.ready(name) for name in self.objects)

    def observed(self) -> bool:
        """Whether the status of every object speaks of its newest spec."""
        return all(
            one.get("status", {}).get("observedGeneration") == one["metadata"]["generation"]
            for one in self.objects.values()
        )


@asynccontextmanager
async def watched(api: KubeApi, resource: Resource, namespace: str | None, labels: str = "") -> AsyncIterator[Watched]:
    """The objects as they are from now on."""
    picture = Watched()
    reflector = Reflector(api, resource, picture.on_event, namespace=namespace, labels=labels)
    following = asyncio.create_task(reflector.run())
    try:
        await reflector.synced.wait()
        yield picture
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
