"""Making room: of holders in the order in which they are to be asked, those that must leave for requests to fit.

As few from the front as make room are taken, and of these each is spared that the requests fit without; so nobody
leaves in vain. More who leave never make less room, which is why bisection finds the first part.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from xdeepserve_operator.planner.placement import Placement, Request, holding, place
from xdeepserve_operator.planner.servers import Server


class Holder(Protocol):
    """Whoever holds dies."""

    @property
    def dies(self) -> Mapping[str, int]:
        """Dies by server."""


H = TypeVar("H", bound=Holder)


def leavers(servers: Sequence[Server], requests: Sequence[Request], order: Sequence[H]) -> tuple[H, ...] | None:
    """Those of ``order`` that must leave ``servers``; None when not even all of them make room."""
    if not _fit(servers, requests, order):
        return None
    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _fit(servers, requests, order[:middle]) else (middle + 1, high)
    chosen = list(order[:low])
    for one in reversed(chosen[:-1]):
        rest = [other for other in chosen if other is not one]
        if _fit(servers, requests, rest):
            chosen = rest
    return tuple(chosen)


def without(servers: Iterable[Server], gone: Iterable[Holder]) -> tuple[Server, ...]:
    """The servers once ``gone`` hold nothing."""
    freed: Counter[str] = Counter()
    for one in gone:
        freed.subtract(one.dies)
    return holding(servers, freed)


def _fit(servers: Sequence[Server], requests: Sequence[Request], gone: Sequence[Holder]) -> bool:
    return isinstance(place(without(servers, gone), requests), Placement)
