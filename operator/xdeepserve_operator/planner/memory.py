"""Remembers what was read from an object, as long as the object stays the same.

Objects are shared and never changed in place; a uid and a resourceVersion name one state of one object for ever. Views
of thousands of pods are asked for in every pass, and between two passes hardly any of them changes. Objects without
both names are read anew every time. Whoever hears that an object is gone calls ``forget``; the limit is for those that
are read once more afterwards.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

View = TypeVar("View")
_MEMORIES: list[dict[str, tuple[str, Any]]] = []
LIMIT = 65_536  # objects; the ones first remembered are forgotten first


def remembered(read: Callable[[Mapping[str, Any]], View]) -> Callable[[Mapping[str, Any]], View]:
    """``read``, which must be a pure function of an object, with a memory of one version an object."""
    known: dict[str, tuple[str, View]] = {}
    _MEMORIES.append(known)

    @wraps(read)
    def recall(obj: Mapping[str, Any]) -> View:
        metadata = obj["metadata"]
        uid, version = metadata.get("uid"), metadata.get("resourceVersion")
        if not uid or not version:
            return read(obj)
        before = known.get(uid)
        if before is not None and before[0] == version:
            return before[1]
        view = read(obj)
        known[uid] = (version, view)
        if len(known) > LIMIT:
            del known[next(iter(known))]
        return view

    return recall


def forget(uid: str) -> None:
    """Drops all that was read from an object."""
    for known in _MEMORIES:
        known.pop(uid, None)
