"""The rule that every document with an epoch obeys, whoever receives it: ``Membership`` and ``Routes``.

A sender repeats itself until it is heard and two senders may overlap, so documents arrive late and twice. The epoch
orders them: an older one is refused, the same one again is harmless, and one epoch never means two things.
"""

from __future__ import annotations

from typing import Protocol, TypeVar


class Refused(Exception):
    """The document cannot be taken; the message says why and what would be. HTTP 409."""


class Dated(Protocol):
    """A document with an epoch, comparable as a whole."""

    @property
    def epoch(self) -> int: ...


D = TypeVar("D", bound=Dated)


def supersedes(offered: D, current: D | None) -> bool:
    """Whether ``offered`` is to be followed: True if it is newer, False if it is the one already followed.

    Raises Refused if it is older than ``current``, or contradicts it under the same epoch.
    """
    if current is None or offered.epoch > current.epoch:
        return True
    if offered.epoch < current.epoch:
        raise Refused(
            f"epoch {offered.epoch} is older than epoch {current.epoch}, which is followed here; send a newer one"
        )
    if offered != current:
        raise Refused(f"epoch {offered.epoch} is followed here with other content; send the change as a newer epoch")
    return False
