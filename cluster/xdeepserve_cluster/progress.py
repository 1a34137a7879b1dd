"""Steps of a long task, printed with their times as they happen.

On a terminal the running step is one line that is rewritten; elsewhere (a log, CI) it is repeated every 15 s, so
that a reader sees both what is being done and that it still moves. A finished step leaves one line.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

TERMINAL_INTERVAL_S = 0.2
LOG_INTERVAL_S = 15.0


class Step:
    """A running step; `detail` is shown behind its name and may be replaced at any time, from any thread."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.detail = ""

    def line(self, elapsed_s: float) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.what}{detail} … {duration(elapsed_s)}"


class Progress:
    """Prints steps and notes to `stream` (standard error by default); `quiet` prints nothing."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        quiet: bool = False,
        interval_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._terminal = self._stream.isatty()
        self._interval_s = interval_s or (TERMINAL_INTERVAL_S if self._terminal else LOG_INTERVAL_S)
        self._clock = clock

    def note(self, text: str) -> None:
        """Print one line."""
        self._write(f"{self._erase()}{text}\n")

    @contextmanager
    def step(self, what: str) -> Iterator[Step]:
        """Show `what` as running inside the `with` block, then print how long it took, failed or not."""
        step = Step(what)
        started = self._clock()
        stop = threading.Event()
        ticker = threading.Thread(target=self._tick, args=(step, started, stop), daemon=True)
        ticker.start()
        outcome = "failed after "
        try:
            yield step
            outcome = ""
        finally:
            stop.set()
            ticker.join()
            self.note(f"{what}  {outcome}{duration(self._clock() - started)}")

    def _tick(self, step: Step, started: float, stop: threading.Event) -> None:
        while not stop.wait(self._interval_s):
            line = step.line(self._clock() - started)
            self._write(f"{self._erase()}{line}" if self._terminal else f"{line}\n")

    def _erase(self) -> str:
        return "\r\033[K" if self._terminal else ""

    def _write(self, text: str) -> None:
        if not self._quiet:
            self._stream.write(text)
            self._stream.flush()


def duration(seconds: float) -> str:
    """`35 ms`, `4.2 s`, `3 min 07 s`."""
    if 0 < seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02d} s"
