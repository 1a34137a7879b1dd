"""The times that a run took, printed as they happen and again as a table at the end."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from xdeepserve_cluster.progress import Progress, duration


@dataclass
class Timeline:
    """Steps with their durations in seconds, and notes with figures."""

    progress: Progress
    steps: list[tuple[str, float]] = field(default_factory=list)

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Runs a step; prints it with its time, whether it succeeds or not."""
        started = time.monotonic()
        with self.progress.step(what):
            yield
        self.steps.append((what, time.monotonic() - started))

    def record(self, what: str, seconds: float) -> None:
        """Prints and keeps a time that was measured inside a step."""
        self.steps.append((what, seconds))
        self.progress.note(f"  {what}  {duration(seconds)}")

    def say(self, text: str) -> None:
        """Prints a line that belongs to the running story."""
        self.progress.note(f"  {text}")
