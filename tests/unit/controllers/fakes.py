"""An API server in memory: the semantics that reconcilers rely on, and a hook before every write.

Server-side apply merges, and takes back fields that an earlier apply set and this one leaves out; fields set by
``create`` are not among them. A change of spec bumps the generation; a write that changes nothing is none. Deletions
show up at the next ``settle_deletions``, as they do through a watch; children follow their controlling owner. Specs
and statuses of our kinds are checked against their types, since the real server would prune what they do not know.
"""

import itertools
import pickle
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from xdeepserve_operator.api.v1alpha1.kinds import KINDS
from xdeepserve_operator.planner.conditions import format_time

Object = dict[str, Any]
TYPES = {kind.kind: kind for kind in KINDS}
LONGEST_HISTORY = 1_000_000  # changes in one world
_WORLDS = itertools.count()


class FakeClock:
    """Time that moves when told to."""

    def __init__(self) -> None:
        self._now = datetime(2025, 1, 1, tzinfo=UTC)
        self._seconds = 100.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._seconds

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._seconds += seconds

    def jump(self, by: timedelta) -> None:
        """The clock is set to another time of day."""
        self._now += by


class FakeApi:
    """Implements Store and Cluster. ``writes`` lists what really changed; ``before_write`` is told of each."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.writes: list[tuple[str, str, str]] = []
        self.events: list[tuple[str, str, str]] = []
        self.changed: list[tuple[str, Object]] = []
        self.before_write: Callable[[], None] | None = None
        self._applied: dict[str, Object] = {}
        self._doomed: dict[str, Object] = {}
        self._tokens: dict[tuple[str, str], str] = {}
        self._counter = 0
        self.part_ways()

    def part_ways(self) -> None:
        """History of its own from here: a uid and a version name one state of one object, in all worlds."""
        self._counter += next(_WORLDS) * LONGEST_HISTORY

    # Store

    def get(self, kind: str, namespace: str | None, name: str) -> Object | None:
        return self.objects.get((kind, namespace or "", name))

    def list(self, kind: str, namespace: str | None = None, labels: Mapping[str, str] | None = None) -> list[Object]:
        wanted = (labels or {}).items()
        keys = sorted(key for key in self.objects if key[0] == kind and namespace in (None, key[1]))
        found = (self.objects[key] for key in keys)
        return [obj for obj in found if wanted <= (obj["metadata"].get("labels") or {}).items()]

    # Cluster

    async def apply(self, kind: str, body: Object) -> Object:
        current = self.get(kind, body["metadata"].get("namespace"), body["metadata"]["name"])
        if current is None:
            stored = await self.create(kind, body)
            self._applied[stored["metadata"]["uid"]] = _copy(body)
            return stored
        uid = current["metadata"]["uid"]
        merged = _copy(current)
        _merge(merged, self._applied.get(uid, {}), body)
        stored = self._store(kind, "apply", merged, current)
        self._applied[uid] = _copy(body)
        return stored

    async def create(self, kind: str, body: Object) -> Object:
        metadata = body["metadata"]
        current = self.get(kind, metadata.get("namespace"), metadata["name"])
        if current is not None:
            return current
        self._before_write("create", kind, metadata["name"])
        return self.add(kind, body)

    async def strip(self, kind: str, obj: Object, fields: Sequence[str]) -> Object:
        def remove(edited: Object) -> None:
            for field in fields:
                *path, last = field.strip("/").split("/")
                holder = edited
                for part in path:
                    holder = holder[part]
                del holder[last]

        assert self.objects[_key(obj)]["metadata"]["resourceVersion"] == obj["metadata"]["resourceVersion"]
        return self.edit(obj, remove, verb="strip")

    async def update_status(self, kind: str, obj: Object, status: Object) -> None:
        current = self.get(kind, obj["metadata"].get("namespace"), obj["metadata"]["name"])
        if current is None:
            return
        merged = _copy(current)
        before = merged.setdefault("status", {})
        for field, value in status.items():
            if field == "conditions":
                ours = {one["type"] for one in value}
                kept = [one for one in before.get("conditions", []) if one["type"] not in ours]
                value = [*value, *kept]
                if _by_type(value) == _by_type(before.get("conditions", [])):
                    continue
            before[field] = _copy(value)
        self._store(kind, "status", merged, current)

    async def scale(self, executor: Object, replicas: int) -> None:
        current = self.get("TaskExecutor", executor["metadata"]["namespace"], executor["metadata"]["name"])
        assert current is not None
        self.edit(current, lambda obj: obj["spec"].update(replicas=replicas), verb="scale")

    async def delete(self, kind: str, obj: Object, *, grace_seconds: int | None = None) -> None:
        uid = obj["metadata"]["uid"]
        current = self.get(kind, obj["metadata"].get("namespace"), obj["metadata"]["name"])
        if current is None or current["metadata"]["uid"] != uid or self._doomed.get(uid, {}).get("grace") == 0:
            return
        if uid in self._doomed and grace_seconds != 0:
            return
        self._before_write("delete", kind, obj["metadata"]["name"])
        self._doomed[uid] = {"kind": kind, "obj": current, "grace": grace_seconds}

    async def delete_all(self, kind: str, namespace: str, labels: Mapping[str, str], fields: Mapping[str, str]) -> None:
        ((field, value),) = fields.items()
        assert field == {"Pod": "spec.nodeName", "DPGroup": "spec.node"}[kind]
        for obj in self.list(kind, namespace, labels):
            if obj["spec"].get(field.removeprefix("spec."), "") == value:
                await self.delete(kind, obj)

    async def token(self, namespace: str, secret_name: str, owner: Object) -> str:
        if (namespace, secret_name) not in self._tokens:
            self._before_write("create", "Secret", secret_name)
            self._tokens[namespace, secret_name] = f"token-of-{owner['metadata']['name']}"
        return self._tokens[namespace, secret_name]

    def event(self, obj: Object, reason: str, message: str, *, warning: bool = False) -> None:
        self.events.append((obj["metadata"]["name"], reason, message))

    # What users, servers and the garbage collector do

    def add(self, kind: str, body: Object) -> Object:
        """Stores a new object."""
        self._counter += 1
        obj = _copy(body)
        obj["kind"] = kind
        obj["metadata"] |= {
            "uid": f"uid-{self._counter}",
            "generation": 1,
            "resourceVersion": str(self._counter),
            "creationTimestamp": format_time(self.clock.now()),
        }
        self._check(kind, obj)
        self.objects[kind, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]] = obj
        self.changed.append((kind, obj))
        return obj

    def edit(self, obj: Object, change: Any, *, verb: str = "") -> Object:
        """Somebody changes an object in place; counted as a write of ours only with a ``verb``."""
        current = self.objects[_key(obj)]
        edited = _copy(current)
        change(edited)
        return self._store(obj["kind"], verb, edited, current)

    def remove(self, obj: Object) -> None:
        """An object is gone at once, and its children with it."""
        gone = self.objects.pop(_key(obj), None)
        if gone is not None:
            self.changed.append((obj["kind"], gone))
            self.collect_garbage()

    def settle_deletions(self) -> None:
        """Deletions reach the store; pods on servers first end there, unless without grace."""
        doomed, self._doomed = self._doomed, {}
        for entry in doomed.values():
            self.end(entry["kind"], entry["obj"], entry["grace"])

    def end(self, kind: str, obj: Object, grace: int | None = None) -> None:
        """Deletes as the API server does."""
        current = self.objects.get(_key(obj))
        if current is None or current["metadata"]["uid"] != obj["metadata"]["uid"]:
            return
        if kind == "Pod" and current["spec"].get("nodeName") and grace != 0:
            if "deletionTimestamp" not in current["metadata"]:
                stamp = {"deletionTimestamp": format_time(self.clock.now()), "deletionGracePeriodSeconds": 5}
                self.edit(current, lambda one: one["metadata"].update(stamp))
            return
        self.remove(current)

    def collect_garbage(self) -> None:
        """Ends objects whose controlling owner is gone."""
        uids = {obj["metadata"]["uid"] for obj in self.objects.values()}
        for obj in list(self.objects.values()):
            owners = obj["metadata"].get("ownerReferences", [])
            if owners and not any(one["uid"] in uids for one in owners):
                self.end(obj["kind"], obj)

    def _store(self, kind: str, verb: str, obj: Object, current: Object) -> Object:
        if obj == current:
            return current
        if verb:
            self._before_write(verb, kind, obj["metadata"]["name"])
        self._counter += 1
        if obj.get("spec") != current.get("spec"):
            obj["metadata"]["generation"] = current["metadata"].get("generation", 1) + 1
        obj["metadata"]["resourceVersion"] = str(self._counter)
        self._check(kind, obj)
        self.objects[_key(obj)] = obj
        self.changed.append((kind, obj))
        return obj

    def _before_write(self, verb: str, kind: str, name: str) -> None:
        if self.before_write is not None:
            self.before_write()
        self.writes.append((verb, kind, name))

    def _check(self, kind: str, obj: Object) -> None:
        if kind in TYPES:
            spec = TYPES[kind].spec.model_validate(obj["spec"])
            if kind == "TaskExecutor":
                obj["spec"].setdefault("replicas", spec.model_dump()["replicas"])
            TYPES[kind].status.model_validate(obj.get("status", {}))


def _copy(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # ten times as fast as deepcopy, and these tests do little else


def _key(obj: Object) -> tuple[str, str, str]:
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _by_type(conditions: list[Object]) -> dict[str, Object]:
    return {one["type"]: one for one in conditions}


def _merge(stored: Object, before: Mapping[str, Any], body: Mapping[str, Any]) -> None:
    for field in before.keys() - body.keys():
        stored.pop(field, None)
    for field, value in body.items():
        if isinstance(value, dict) and isinstance(stored.get(field), dict):
            _merge(stored[field], before.get(field, {}), value)
        else:
            stored[field] = _copy(value)
