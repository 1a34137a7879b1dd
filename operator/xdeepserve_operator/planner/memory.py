"""Remembers what was read from an object, as long as the object stays the same.

Objects are shared and never changed in place; a uid and a resourceVersion name one state of one object for ever. Views
of thousands of pods are asked for in every pass, and between two passes hardly any of them changes. Objects without
both names are read anew every time.

Whoever hears that an object is gone calls ``forget``; but a pass that began before may read it once more afterwards. So
``turn`` is called now and then: what was not asked for between two turns is forgotten at the second.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

View = TypeVar("View")
_Views = dict[str, tuple[str, Any]]  # by uid: the resourceVersion and what was read


class _Memory:
    """``asked`` since the last turn, and ``before`` it."""

    def __init__(self) -> None:
        self.asked: _Views = {}
        self.before: _Views = {}


_MEMORIES: list[_Memory] = []


def remembered(read: Callable[[Mapping[str, Any]], View]) -> Callable[[Mapping[str, Any]], View]:
    """``read``, which must be a pure function of an object, with a memory of one version an object."""
    memory = _Memory()
    _MEMORIES.append(memory)

    @wraps(read)
    def recall(obj: Mapping[str, Any]) -> View:
        metadata = obj["metadata"]
        uid, version = metadata.get("uid"), metadata.get("resourceVersion")
        if not uid or not version:
            return read(obj)
        known = memory.asked.get(uid)
        if known is None and (known := memory.before.pop(uid, None)) is not None:
            memory.asked[uid] = known
        if known is not None and known[0] == version:
            view: View = known[1]
            return view
        view = read(obj)
        memory.asked[uid] = (version, view)
        return view

    return recall


def forget(uid: str) -> None:
    """Drops all that was read from an object."""
    for memory in _MEMORIES:
        memory.asked.pop(uid, None)
        memory.before.pop(uid, None)


def turn() -> None:
    """Drops what nobody asked for since the last turn."""
    for memory in _MEMORIES:
        memory.before, memory.asked = memory.asked, {}
