"""An event loop that lets news gather in a flood, as network cards do: one wake-up for several, not one each.

What comes after a silence is heard at once. What comes within a moment of the last news waits for so long, and what
arrives meanwhile is heard with it: every wake-up costs more than most of the news it is for. Watches, whose news can
wait longer, gather them further on top of that (`kube.gulps`); answers to requests cannot.
"""

import asyncio
import selectors
import time
from collections.abc import Callable

MOMENT_SECONDS = 0.004


class ModeratedSelector(selectors.DefaultSelector):
    """Waits for news with pauses between them in a flood."""

    def __init__(
        self, *, monotonic: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        super().__init__()
        self._monotonic, self._sleep = monotonic, sleep
        self._heard = float("-inf")

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """As its parent; a ``timeout`` of 0 is that of a loop with work at hand, which is never held up."""
        if (timeout is None or timeout > 0) and self._monotonic() - self._heard < MOMENT_SECONDS:
            pause = MOMENT_SECONDS if timeout is None else min(timeout, MOMENT_SECONDS)
            self._sleep(pause)
            timeout = None if timeout is None else timeout - pause
        news = super().select(timeout)
        if news:
            self._heard = self._monotonic()
        return news


def moderated_loop() -> asyncio.AbstractEventLoop:
    """For ``asyncio.Runner``."""
    return asyncio.SelectorEventLoop(ModeratedSelector())
