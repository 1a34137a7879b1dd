"""Versions of commands: how they are written, and which are near enough to the pinned one."""

from __future__ import annotations

import re
from typing import NamedTuple

_VERSION = re.compile(r"(?<![\d.])v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?")


class Version(NamedTuple):
    """A version's three numbers; what may follow them (`-rc.1`, `+meta`) does not matter here."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    def within(self, pinned: Version, minors: int) -> bool:
        """Whether this is of the same major as `pinned`, and at most `minors` minors away from it."""
        return self.major == pinned.major and abs(self.minor - pinned.minor) <= minors


def parse_version(text: str) -> Version | None:
    """The first version in what a command prints (`Kubernetes v1.34.4`, `go version go1.26 linux/amd64`)."""
    match = _VERSION.search(re.sub(r"\bgo(?=\d)", "", text))
    return match and Version(int(match[1]), int(match[2]), int(match[3] or 0))
