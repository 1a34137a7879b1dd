"""What was learned of late, by key: for things whose end nobody tells, or of which late news may still come.

Nothing is older than ``seconds``: what is, goes when something new comes. The clock is the caller's, and never goes
back.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values by key, each worth keeping for ``seconds`` after it was put."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._values: OrderedDict[K, tuple[float, V]] = OrderedDict()  # the ones that were put last at the end

    def put(self, key: K, value: V, now: float) -> None:
        """Learned just now."""
        self._values[key] = (now, value)
        self._values.move_to_end(key)
        while now - next(iter(self._values.values()))[0] > self._seconds:
            self._values.popitem(last=False)

    def get(self, key: K, now: float) -> V | None:
        """The value, unless it is too old or there is none."""
        at, value = self._values.get(key, (now, None))
        return value if now - at <= self._seconds else None

    def __contains__(self, key: K) -> bool:
        """Whether it is still here, be it too old: nothing new has come since."""
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)
