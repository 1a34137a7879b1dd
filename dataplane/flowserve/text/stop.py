"""Stop strings in a stream of text.

Text that may be the beginning of a stop string is held back until it is known not to be. The stop string that is
complete first wins, of two that end together the longer one; how the text was cut into pieces makes no difference.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Passes text through until one of `stops`, none of them empty; `stopped` is then true."""

    def __init__(self, stops: Sequence[str]) -> None:
        if not all(stops):
            raise ValueError("a stop string must not be empty")
        self.stopped = False
        self._stops = tuple(stops)
        self._held = ""

    def push(self, text: str) -> str:
        """The text that is safe to show now: never any of a stop string, nor anything after it."""
        if self.stopped:
            return ""
        self._held += text
        found = [(at + len(stop), at) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            end = min(found)[1]
        else:
            end = len(self._held) - self._undecided()
        shown, self._held = self._held[:end], "" if self.stopped else self._held[end:]
        return shown

    def finish(self) -> str:
        """What was held back, at the end of a stream that did not stop."""
        shown, self._held = self._held, ""
        return shown

    def _undecided(self) -> int:
        """The length of the longest end of the held text that some stop string begins with."""
        longest = max(map(len, self._stops), default=1) - 1
        for length in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self._stops):
                return length
        return 0
