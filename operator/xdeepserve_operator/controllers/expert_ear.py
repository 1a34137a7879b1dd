"""What an instance tells of its experts: what was counted, and where they are. All of it can be asked for again."""

from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from flowserve.wire import ShellStatus
from flowserve.wire_experts import ExpertHistory, ExpertOrder, ExpertSlice, ExpertTable, ExpertWatch
from xdeepserve_operator.api.v1alpha1.experts import ExpertPlacementSpec
from xdeepserve_operator.controllers.ports import Object
from xdeepserve_operator.planner.expert_evacuation import Evacuation
from xdeepserve_operator.planner.expert_load import Group
from xdeepserve_operator.planner.expert_map import Map
from xdeepserve_operator.planner.expert_ranks import Ranks

MOST_SLICES = 32


class ExpertRoutes(Protocol):
    """Routes of TE-shells; no answer is None or False."""

    def watch(self, host: str, token: str, watch: ExpertWatch) -> Awaitable[bool]: ...

    def history(self, host: str, token: str, after: int) -> Awaitable[ExpertHistory | None]: ...

    def table(self, host: str, token: str) -> Awaitable[ExpertTable | None]: ...

    def order(self, host: str, token: str, order: ExpertOrder) -> Awaitable[bool]: ...

    def call_off(self, host: str, token: str, version: int) -> Awaitable[bool]: ...


@dataclass(frozen=True)
class Look:
    """One pass over one instance: what it is, what is asked, and what the TE-shell at ``host`` said."""

    placement: Object
    spec: ExpertPlacementSpec
    index: int
    instance: str
    host: str
    token: str
    report: ShellStatus
    frozen: str  # why nothing may move, but what ``evacuation`` asks for; empty if anything may
    at_once: bool  # somebody asks to act on the next plan whatever it is worth
    evacuation: Evacuation
    servers: tuple[str, ...]  # by rank

    @cached_property
    def ranks(self) -> Ranks:
        """What a plan must know of its ranks."""
        return Ranks.of(self.spec, self.evacuation.ranks, self.servers)

    @property
    def emptied(self) -> frozenset[int]:
        """Ranks that are to be emptied now."""
        return self.evacuation.ranks if self.frozen else self.ranks.closed

    def may_become(self, wanted: Map | None) -> bool:
        """Whether experts may move towards this map: while nothing else may, it must do what recovery asks for."""
        saves = wanted is not None and bool(self.evacuation.ranks) and not wanted.used & self.evacuation.ranks
        return not self.frozen or saves


@dataclass(frozen=True)
class Force:
    """The placement in force; ``missing``: experts without any copy in it."""

    table: ExpertTable
    map: Map
    missing: int


class Ear:
    """Listens to one instance. ``heard``: slices so far; ``rows``: pairs a rank, layer and iteration.

    What was heard outlives the TE-shell that told it, as the shell's own memory outlives the operator.
    """

    def __init__(self, routes: ExpertRoutes) -> None:
        self.slices: deque[ExpertSlice] = deque(maxlen=MOST_SLICES)
        self.heard = 0
        self.rows = 0.0
        self._routes = routes
        self._shell = ""
        self._sequence = 0  # of the newest slice, in the shell's words
        self._watched: ExpertWatch | None = None
        self._iterations = 0
        self._force: Force | None = None

    async def listen(self, look: Look, group: Group) -> None:
        """Fetches what was counted since the last time, and sees to it that counting goes on."""
        if self._shell != look.report.incarnation:  # a new TE-shell counts from the beginning
            self._shell, self._watched, self._sequence = look.report.incarnation, None, 0
        spec = look.spec
        watch = ExpertWatch(instance=look.instance, interval_seconds=spec.interval_seconds, slices=spec.window)
        if self._watched != watch and await self._routes.watch(look.host, look.token, watch):
            self._watched = watch
        history = await self._routes.history(look.host, look.token, self._sequence)
        if history is None or not history.slices:
            return
        pairs = sum(map(sum, history.slices[-1].served))
        passed = (group.iterations - self._iterations) * group.ranks * max(len(history.layers), 1)
        if self._iterations and passed > 0:
            self.rows = pairs / passed
        self._iterations = group.iterations
        if self.slices and _shape(self.slices[-1]) != _shape(history.slices[-1]):
            self.slices.clear()  # of another model
        self.slices.extend(history.slices)
        self.heard += len(history.slices)
        self._sequence = history.slices[-1].sequence

    async def force(self, look: Look, group: Group) -> Force | None:
        """The placement in force; None while it changes, or ranks differ."""
        current = group.epoch, group.version
        if self._force is None or (self._force.table.epoch, self._force.table.version) != current:
            table = None if group.target else await self._routes.table(look.host, look.token)
            fresh = table is not None and (table.epoch, table.version) == current
            self._force = _force(table) if table is not None and fresh else None
        return self._force


def _shape(one: ExpertSlice) -> tuple[int, int]:
    """Layers and experts."""
    return len(one.chosen), max(map(len, one.chosen), default=0)


def _force(table: ExpertTable) -> Force:
    known = Map.of(table)
    return Force(table, known, known.missing())
