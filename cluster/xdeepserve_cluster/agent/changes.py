"""Waiting until something holds, woken by changes instead of a clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Changes:
    """Used in one event loop, where nothing can change between a look at a predicate and the wait that follows."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Something changed: everybody who waits looks again."""
        self._event.set()
        self._event = asyncio.Event()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Returns when `holds()` is true; at once if it is already."""
        while not holds():
            await self._event.wait()
