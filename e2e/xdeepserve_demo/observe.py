"""Watching objects until they say what is awaited; every wait has a deadline and tells what it saw last."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from xdeepserve_operator.runtime.kube import KubeApi
from xdeepserve_operator.runtime.reflector import Reflector
from xdeepserve_operator.runtime.resources import Resource

Object = dict[str, Any]


def condition(obj: Object, kind: str) -> Object:
    """The condition of that type, or an unknown one."""
    conditions = obj.get("status", {}).get("conditions", [])
    unknown = {"type": kind, "status": "Unknown", "reason": "Absent", "message": "no such condition yet"}
    return next((one for one in conditions if one["type"] == kind), unknown)


@dataclass
class Observer:
    """Follows one object; remembers when each state of a condition was first seen (``time.monotonic``)."""

    name: str
    latest: Object | None = None
    transitions: list[tuple[float, str, str]] = field(default_factory=list)  # (when, Ready status, reason)
    _failure: Exception | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self, api: KubeApi, resource: Resource, namespace: str | None) -> None:
        """Runs until cancelled; what ends it otherwise is raised by whoever waits, too."""
        fields = f"metadata.name={self.name}"
        try:
            await Reflector(api, resource, self._take, namespace=namespace, fields=fields).run()
        except Exception as error:
            self._failure = error
            self._changed.set()
            raise

    async def until(self, test: Callable[[Object], bool], what: str, timeout: float) -> Object:
        """Waits until the object passes ``test``; TimeoutError says what was seen last."""
        try:
            async with asyncio.timeout(timeout):
                while self.latest is None or not test(self.latest):
                    if self._failure is not None:
                        raise RuntimeError(f"{self.name}: nobody follows it any more") from self._failure
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            seen = condition(self.latest, "Ready") if self.latest else {"reason": "Absent", "message": "no object"}
            last = f"{seen.get('reason', '')}: {seen.get('message', '')}"
            raise TimeoutError(f"{self.name}: not {what} within {timeout:.0f} s; last: {last}") from None
        return self.latest

    def _take(self, _kind: str, obj: Object) -> None:
        ready = condition(obj, "Ready")
        state = (ready["status"], ready.get("reason", ""))  # pods give none
        if not self.transitions or self.transitions[-1][1:] != state:
            self.transitions.append((time.monotonic(), *state))
        self.latest = obj
        self._changed.set()
