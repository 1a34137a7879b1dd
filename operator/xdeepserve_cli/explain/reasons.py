"""Why a server holds what it holds of a TaskExecutor, and why no more: the first reason that holds. Pure.

The rules are those of planner.placement; what was free when a group was placed is not remembered, so a server that
would take it now is told apart by the rules that never change: the plane that KV crosses, the order of chips, whole
servers last. Engines that wait count as held, and are named: they take the next group, or give way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdeepserve_operator.api.v1alpha1.base import Chip
from xdeepserve_operator.api.v1alpha1.executor import TaskExecutorSpec
from xdeepserve_operator.planner.placement import FASTEST_FIRST, Request
from xdeepserve_operator.planner.servers import Server

PLANES = ", then ".join(FASTEST_FIRST)


@dataclass(frozen=True)
class Held:
    """What lies on one server: DP groups of the TaskExecutor, its own waiting engines, dies of all that wait."""

    groups: int = 0
    waiting: int = 0
    waiting_dies: int = 0


@dataclass(frozen=True)
class Reason:
    """One server; counts are dies but for ``groups``, those of the TaskExecutor. ``warm``: held by waiting engines."""

    server: str
    chip: Chip
    plane: str
    dies: int
    free: int
    groups: int
    warm: int
    why: str


@dataclass(frozen=True)
class Explanation:
    """``asked``: what the TaskExecutor needs. ``placed``: the operator's own words. ``kv``: what its KV crosses."""

    asked: str
    placed: str
    kv: str
    servers: tuple[Reason, ...]


def explain(
    name: str, verdict: str, spec: TaskExecutorSpec, servers: Sequence[Server], held: Mapping[str, Held]
) -> Explanation:
    """``verdict``: the condition Placed; ``held`` by server. Servers that hold its groups come first."""
    chips = Request(spec.role, spec.superpod_ref.name, tuple(spec.chips), ()).allowed
    groups = f"{_count(spec.parallelism.dp, 'group')} of {_count(spec.parallelism.tp, 'die')}"
    asked = (
        f"{spec.role} {name} asks for {spec.replicas} x {groups} "
        f"on {' or '.join(chips) or 'no chip'} in SuperPod {spec.superpod_ref.name}; "
        "a group lies on one server, an instance on one chip"
    )
    used = [one for one in servers if one.name in held and held[one.name].groups]
    rules = _Rules(spec, chips, used)
    reasons = [_reason(rules, one, held.get(one.name, Held())) for one in servers]
    ordered = sorted(reasons, key=lambda one: (-one.groups, one.server))
    return Explanation(asked, verdict, _kv(used), tuple(ordered))


@dataclass(frozen=True)
class _Rules:
    spec: TaskExecutorSpec
    chips: Sequence[Chip]
    used: Sequence[Server]

    def why(self, server: Server, held: Held) -> str:
        health, wanted = server.health, self.spec.parallelism.tp
        sick = f", {_count(len(health.unhealthy), 'die')} unhealthy" if health.unhealthy else ""
        if held.groups:
            use = f"{server.used} of {server.allocatable} dies in use"
            return f"holds {held.groups} of its groups, its KV crosses {server.plane}; {use}{sick}{_warm(held)}"
        if server.mismatch is not None:
            return f"never used: {server.mismatch}"
        if server.chip not in self.chips:
            rule = "Decode runs on 910C only" if self.spec.role == "Decode" else f"it may run on {_list(self.chips)}"
            return f"chip {server.chip}: {rule}"
        if not health.ready:
            return "its node is lost: nobody hears it" if health.lost else "its node is not ready"
        if not health.schedulable:
            return "its node is cordoned or tainted"
        if held.waiting:
            return f"nothing yet; its own waiting engines take its next groups{sick}{_warm(held)}"
        if server.free < wanted:
            return f"{_count(server.free, 'die')} free, a group needs {wanted}{sick}{_warm(held)}"
        return f"{self._passed_over(server)}{sick}{_warm(held)}"

    def _passed_over(self, server: Server) -> str:
        """Why one with room for a group has none."""
        if not self.used:
            groups = _count(server.free // self.spec.parallelism.tp, "group")
            return f"has room for {groups}, over {server.plane}; what is placed together fits whole or not at all"
        chips = {one.chip for one in self.used}
        if server.chip not in chips:
            first = self.chips.index(server.chip) < min(map(self.chips.index, chips & set(self.chips)), default=0)
            why = f"{server.chip} had no room for a whole one" if first else f"{_list(sorted(chips))} is preferred"
            return f"would fit, but an instance lies on one chip, and {why}"
        slowest = max(FASTEST_FIRST.index(one.plane) for one in self.used if one.chip == server.chip)
        if FASTEST_FIRST.index(server.plane) > slowest:
            return f"would fit, but its KV would cross {server.plane}; servers on {FASTEST_FIRST[slowest]} had room"
        if FASTEST_FIRST.index(server.plane) < slowest:
            return f"would fit; when it was placed, servers on {server.plane} had no room for all of it"
        if server.used == 0:
            return "would fit; whole servers stay free for big gangs while one in use has room"
        return "would fit; another server was left with fewer free dies"


def _reason(rules: _Rules, server: Server, held: Held) -> Reason:
    return Reason(
        server=server.name,
        chip=server.chip,
        plane=server.plane,
        dies=server.capacity,
        free=server.free,
        groups=held.groups,
        warm=held.waiting_dies,
        why=rules.why(server, held),
    )


def _kv(used: Sequence[Server]) -> str:
    order = f"{PLANES}: a slower plane is used only when the faster ones have no room for what is placed together"
    if not used:
        return f"its KV will cross {order}"
    crossed = sorted({one.plane for one in used}, key=FASTEST_FIRST.index)
    return f"its KV crosses {_list(crossed)}; {order}"


def _warm(held: Held) -> str:
    if not held.waiting_dies:
        return ""
    mine = f", {held.waiting} of them its own" if held.waiting else ""
    return f"; waiting engines hold {_count(held.waiting_dies, 'die')}{mine}, and give way to a gang that lacks them"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _list(words: Sequence[str]) -> str:
    return ", ".join(words)
