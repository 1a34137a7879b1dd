"""Runs reconcilers against the fakes until nothing happens any more, in virtual time."""

import pickle
from typing import Any

from xdeepserve_operator.api import names
from xdeepserve_operator.controllers.ports import Key, Reconciler
from xdeepserve_operator.controllers.wiring import interested, reconcilers
from xdeepserve_operator.planner.conditions import find_condition
from xdeepserve_operator.runtime.cache import WATCHED

from .fakes import FakeApi, FakeClock, Object
from .hardware import Hardware

TICK = 0.1
QUIET_TICKS = 30
LIMIT_TICKS = 1200
NAMESPACE = "default"
HEARD_OF = {resource.kind for resource in WATCHED}  # of other kinds the operator learns nothing


class World:
    """A cluster with servers, and an operator that can be stopped and started."""

    def __init__(self, prefill_servers: int = 1, decode_servers: int = 2) -> None:
        self.clock = FakeClock()
        self.api = FakeApi(self.clock)
        self.hardware = Hardware(self.api)
        for number in range(prefill_servers):
            self.hardware.add_server(f"b{number}", "910B")
        for number in range(decode_servers):
            self.hardware.add_server(f"c{number}", "910C")
        self.image = "engine:1"
        self.reconciled: list[Key] = []
        self.start_operator()

    def start_operator(self) -> None:
        """A new operator that remembers nothing and looks at everything."""
        self._reconcilers: dict[str, Reconciler] = {
            one.kind: one for one in reconcilers(self.api, self.api, self.hardware, self.clock, engine_image=self.image)
        }
        self._due: dict[Key, float] = {}
        self.api.changed.clear()
        for kind, namespace, name in list(self.api.objects):
            if kind in self._reconcilers:
                self._due[Key(kind, namespace or None, name)] = 0.0

    async def tick(self) -> None:
        """One moment of the servers, then every reconciler that is due."""
        self.clock.advance(TICK)
        self.hardware.step()
        for _ in range(50):
            for kind, obj in (one for one in self.api.changed if one[0] in HEARD_OF):
                self._due |= dict.fromkeys(interested(self.api, kind, obj), 0.0)
            self.api.changed.clear()
            now = self.clock.monotonic()
            ready = [key for key, due in self._due.items() if due <= now and key.kind in self._reconcilers]
            if not ready:
                return
            for key in ready:
                del self._due[key]
                self.reconciled.append(key)
                again = await self._reconcilers[key.kind].reconcile(key.namespace, key.name)
                if again is not None:
                    self._due[key] = min(self._due.get(key, now + again), now + again)
        raise AssertionError("reconcilers keep waking one another")

    async def run(self, seconds: float) -> None:
        """Lets virtual time pass."""
        for _ in range(round(seconds / TICK)):
            await self.tick()

    async def settle(self) -> None:
        """Runs until nobody has changed anything for a while."""
        quiet = 0
        for _ in range(LIMIT_TICKS):
            before = self._versions()
            await self.tick()
            quiet = quiet + 1 if self._versions() == before else 0
            if quiet >= QUIET_TICKS:
                return
        raise AssertionError(f"not quiet after {LIMIT_TICKS} ticks; last writes {self.api.writes[-10:]}")

    async def settle_remembering(self) -> list[bytes]:
        """Settles, and gives the world as it was just before each of the operator's writes."""
        moments: list[bytes] = []

        def remember() -> None:
            self.api.before_write = None
            moments.append(pickle.dumps((self.clock, self.api, self.hardware, self.image)))
            self.api.before_write = remember

        self.api.before_write = remember
        await self.settle()
        self.api.before_write = None
        return moments

    @classmethod
    def after_death(cls, moment: bytes) -> "World":
        """The world at that moment; the operator died there, and a new one starts."""
        world = cls.__new__(cls)
        world.clock, world.api, world.hardware, world.image = pickle.loads(moment)
        world.api.part_ways()
        world.reconciled = []
        world.start_operator()
        return world

    # Reading

    def get(self, kind: str, name: str) -> Object:
        namespace = None if kind in ("SuperPod", "Node") else NAMESPACE
        obj = self.api.get(kind, namespace, name)
        assert obj is not None, f"no {kind} {name}"
        return obj

    def ready(self, kind: str, name: str) -> tuple[bool, str, str]:
        """Status, reason and message of Ready."""
        condition: Any = find_condition(self.get(kind, name), "Ready") or {}
        return condition.get("status") == "True", condition.get("reason", ""), condition.get("message", "")

    def names(self, kind: str, **labels: str) -> list[str]:
        return [obj["metadata"]["name"] for obj in self.api.list(kind, None, labels)]

    def engine_pods(self, executor: str) -> list[Object]:
        labels = {names.LABEL_EXECUTOR: executor, names.LABEL_COMPONENT: names.COMPONENT_ENGINE}
        return self.api.list("Pod", NAMESPACE, labels)

    def place_of(self, pod: Object) -> tuple[str, list[int]]:
        marks = pod["metadata"].get("annotations", {}).get(names.POD_ANNOTATION_DIES)
        return pod["spec"].get("nodeName", ""), sorted(names.parse_dies(marks))

    def _versions(self) -> dict[Any, str]:
        return {key: obj["metadata"]["resourceVersion"] for key, obj in self.api.objects.items()}
