"""What the operator knows of the cluster: the newest seen life of every object, indexed by the labels it looks up.

Fed by watches and by the answers of our own writes, so a reconciler reads its own writes. Invariants:
* an object is replaced only by a higher resourceVersion, or by another uid of the same name that is newer;
* a uid that was deleted does not come back, however late an answer arrives;
* ``list`` by indexed labels touches only the matches of the rarest (4 000 objects must not cost 16 million looks).
Objects are shared, not copied: readers must not change them.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any

from xdeepserve_operator.api.names import LABEL_COMPONENT, LABEL_DEPLOYMENT, LABEL_EXECUTOR, LABEL_GROUP
from xdeepserve_operator.planner.recent import Recent

Object = dict[str, Any]
Key = tuple[str, str]  # (namespace, name); namespace "" for cluster-wide objects
INDEXED_LABELS = (LABEL_GROUP, LABEL_EXECUTOR, LABEL_DEPLOYMENT, LABEL_COMPONENT)
_NONE: Set[Key] = frozenset()
TOMBSTONE_SECONDS = 120.0  # no answer is later, and no watch repeats what was before its DELETED


def version_of(obj: Object) -> int:
    """The resourceVersion as a number (comparable since KEP-5504); 0 when absent."""
    text = str(obj["metadata"].get("resourceVersion") or "0")
    return int(text) if text.isdecimal() else 0


class Store:
    """The caches of all kinds; ``on_change(kind, object)`` hears every piece of news, wherever it came from."""

    def __init__(
        self,
        on_change: Callable[[str, Object], None] = lambda _kind, _obj: None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_change, self._monotonic = on_change, monotonic
        self._objects: dict[str, dict[Key, Object]] = defaultdict(dict)
        self._index: dict[tuple[str, str, str, str], set[Key]] = defaultdict(set)
        self._deleted = Recent[str, None](TOMBSTONE_SECONDS)  # uids

    def get(self, kind: str, namespace: str | None, name: str) -> Object | None:
        """The object, or None."""
        return self._objects[kind].get((namespace or "", name))

    def list(self, kind: str, namespace: str | None = None, labels: Mapping[str, str] | None = None) -> list[Object]:
        """Objects of a kind, in a namespace or in all, that carry all ``labels``; ordered by key."""
        wanted = dict(labels or {})
        found = [
            (key, obj)
            for key, obj in self._candidates(kind, namespace, wanted)
            if (namespace is None or key[0] == namespace) and wanted.items() <= _labels(obj).items()
        ]
        return [obj for _, obj in sorted(found, key=lambda pair: pair[0])]

    def put(self, kind: str, obj: Object) -> bool:
        """Takes an object from a watch or an answer; False when it is no news."""
        key = _key(obj)
        uid = obj["metadata"].get("uid", "")
        if uid in self._deleted:
            return False
        before = self._objects[kind].get(key)
        if before is not None:
            if version_of(obj) <= version_of(before):
                return False
            self._unindex(kind, key, before)
        self._objects[kind][key] = obj
        for label, value in _labels(obj).items():
            if label in INDEXED_LABELS:
                self._index[(kind, label, key[0], value)].add(key)
        self._on_change(kind, obj)
        return True

    def remove(self, kind: str, obj: Object) -> bool:
        """Takes the news that this life of the object ended; False when another life holds the name."""
        uid = obj["metadata"].get("uid", "")
        self._deleted.put(uid, None, self._monotonic())
        key = _key(obj)
        before = self._objects[kind].get(key)
        if before is None or before["metadata"].get("uid", "") != uid:
            return False
        self._unindex(kind, key, before)
        del self._objects[kind][key]
        self._on_change(kind, obj)
        return True

    def keys(self, kind: str) -> Iterator[Key]:
        """Keys of all objects of a kind."""
        return iter(list(self._objects[kind]))

    def _candidates(self, kind: str, namespace: str | None, labels: Mapping[str, str]) -> Iterable[tuple[Key, Object]]:
        objects = self._objects[kind]
        if namespace is None or labels.keys().isdisjoint(INDEXED_LABELS):
            return objects.items()
        asked = (label for label in INDEXED_LABELS if label in labels)
        keys = min((self._index.get((kind, label, namespace, labels[label]), _NONE) for label in asked), key=len)
        return ((key, objects[key]) for key in keys)

    def _unindex(self, kind: str, key: Key, obj: Object) -> None:
        for label, value in _labels(obj).items():
            if label in INDEXED_LABELS:
                slot = (kind, label, key[0], value)
                self._index[slot].discard(key)
                if not self._index[slot]:
                    del self._index[slot]


def _key(obj: Object) -> Key:
    metadata = obj["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


def _labels(obj: Object) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}
