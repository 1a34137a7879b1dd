"""ScalingPolicy's decision: from what the roles show to how many instances each shall have, and why.

Each role's need (scaling_demand) is brought into its bounds, then into the bounds between prefill and decode (by more
of the one that is too few, never by fewer of the other), then followed at its pace (scaling_pace). On top of that:

* 0 and back: a role whose least is 0 has none after ``idleSeconds`` without use (scaling_idle); the first request that
  finds no instance brings it back at once.
* Frozen: while a rollout or a recovery runs nothing changes, and what is wished meanwhile does not count. Nor does
  silence: a role with an instance that serves and is not heard keeps what it has.
* Somebody else's: a role whose number is neither what this policy set last nor what it was before is left alone until
  the policy itself is edited.
"""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from xdeepserve_operator.api.v1alpha1.scaling import PrefillRatio, RoleBounds, ScalingPolicySpec, ScalingReason
from xdeepserve_operator.planner.scaling_demand import Need, Objective, RoleLoad, mean_of, need_of
from xdeepserve_operator.planner.scaling_idle import in_use, wanted_back
from xdeepserve_operator.planner.scaling_latency import Latency
from xdeepserve_operator.planner.scaling_pace import Memory, paced

MEAN_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known at one moment. ``foreign``: roles that somebody else scaled; ``frozen``: why nothing may change."""

    roles: tuple[RoleLoad, ...]
    latency: Latency
    active: int = 0  # requests in the frontends
    foreign: frozenset[str] = frozenset()
    frozen: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """One role: instances from now on, and what decided."""

    role: str
    before: int
    after: int
    score: int
    reason: ScalingReason
    message: str


@dataclass(frozen=True, slots=True)
class State:
    """What a policy remembers from one moment to the next; all of it can be lost at the price of one window.

    ``begun``: when it was first asked; ``used``: when roles were last in use.
    """

    roles: Mapping[str, Memory]
    begun: float
    used: Mapping[str, float] = field(default_factory=dict)
    recent: tuple[tuple[float, tuple[RoleLoad, ...]], ...] = ()  # loads of the last MEAN_SECONDS, oldest first


def begin(now: float) -> State:
    """The state of a policy that was never asked."""
    return State({}, now)


def decide(
    spec: ScalingPolicySpec, objective: Objective, seen: Seen, state: State, now: float
) -> tuple[tuple[Decision, ...], State]:
    """The decisions for the policy's roles that exist, and what to remember; ``now`` in seconds that never jump."""
    recent = (*(one for one in state.recent if one[0] > now - MEAN_SECONDS), (now, seen.roles))
    seen = replace(seen, roles=_means(recent))
    bounds = {one.name: one for one in spec.roles}
    mine = [role for role in seen.roles if role.name in bounds]
    asked = seen.active + seen.latency.news + sum(role.sequences for role in seen.roles)
    used = {
        role.name: now if in_use(role, seen.roles, asked=bool(asked)) else state.used.get(role.name, state.begun)
        for role in mine
    }
    idle = {name for name, last in used.items() if now - last >= spec.behavior.idle_seconds}
    needs = _needs(spec, objective, seen, mine, idle)
    still = {role.name: why for role in mine if (why := _standstill(role, seen)) is not None}
    free = {role.name: needs[role.name].instances for role in mine if role.name not in still}
    wishes = _balanced(free, seen.roles, bounds, spec.prefill_ratio)
    memories: dict[str, Memory] = {}
    decisions: list[Decision] = []
    for role in mine:
        need, now_wanted = needs[role.name], wishes.get(role.name, role.replicas)
        if role.name in free and now_wanted != need.instances:
            need = replace(need, instances=now_wanted, reason="Ratio", message="prefill and decode keep in proportion")
        memory = state.roles.get(role.name, Memory()).wish(now, now_wanted, role.replicas, spec.behavior)
        # No window holds up the first request, and the idle time is a window itself.
        at_once = need.reason in ("Demand", "Idle") or role.name in still
        after = now_wanted if at_once else paced(memory, role.replicas, spec.behavior, now)
        if after != role.replicas and spec.mode == "Active":
            memory = memory.stepped(now, up=after > role.replicas)
        memories[role.name] = memory
        reason, message = still.get(role.name) or _told(role, after, need, bounds[role.name])
        decisions.append(Decision(role.name, role.replicas, after, round(need.score, -1), reason, message))
    return tuple(decisions), State(memories, state.begun, used, recent)


def _means(recent: Sequence[tuple[float, tuple[RoleLoad, ...]]]) -> tuple[RoleLoad, ...]:
    """The newest loads, smoothed over those before."""
    return tuple(
        mean_of([one for _, roles in recent for one in roles if one.name == newest.name]) for newest in recent[-1][1]
    )


def _standstill(role: RoleLoad, seen: Seen) -> tuple[ScalingReason, str] | None:
    """Why the role keeps what it has, whatever it needs."""
    if role.name in seen.foreign:
        return "ScaledByUser", f"somebody scaled it to {role.replicas}; edit this policy to take it over again"
    if seen.frozen:
        return "Frozen", seen.frozen
    if role.silent:
        return "NoData", f"{role.silent} instances that serve are not heard"
    return None


def _needs(
    spec: ScalingPolicySpec, objective: Objective, seen: Seen, mine: Sequence[RoleLoad], idle: Set[str]
) -> dict[str, Need]:
    """What every role of the policy needs, within its bounds."""
    bounds = {one.name: one for one in spec.roles}
    most = {one.name: one.max_replicas for one in spec.roles}
    demand = bool(seen.active or seen.latency.refused)
    pure = {
        role.name: need_of(role, tuple(one for one in seen.roles if one is not role), seen.latency, objective)
        for role in seen.roles
    }
    found: dict[str, Need] = {}
    for role in mine:
        need, low = pure[role.name], bounds[role.name].min_replicas
        back = wanted_back(role, seen.roles, pure, most, demand=demand) if role.replicas == 0 else ""
        if back:
            need = Need(max(1, need.instances), 100, "Demand", back)
        elif low == 0 and (role.name in idle or role.replicas == 0):
            need = Need(0, 0, "Idle", f"not used for {spec.behavior.idle_seconds} s" if role.replicas else "no request")
        else:
            need = replace(need, instances=max(1, need.instances))
        found[role.name] = replace(need, instances=min(most[role.name], max(low, need.instances)))
    return found


def _balanced(
    wishes: dict[str, int], roles: Sequence[RoleLoad], bounds: Mapping[str, RoleBounds], ratio: PrefillRatio
) -> dict[str, int]:
    """The wishes with as many more prefill, or decode, as the bounds between them ask for and those of roles let."""
    wishes = dict(wishes)

    def total(kind: str) -> int:
        return sum(wishes.get(role.name, role.replicas) for role in roles if role.type == kind)

    def add(kind: str, missing: int) -> None:
        for role in sorted(roles, key=lambda one: not wishes.get(one.name)):  # those that have none come last
            if role.type == kind and role.name in wishes and missing > 0:
                more = min(missing, bounds[role.name].max_replicas - wishes[role.name])
                wishes[role.name] += more
                missing -= more

    prefill, decode = total("Prefill"), total("Decode")
    if prefill and decode:
        add("Prefill", math.ceil(decode * ratio.min_percent / 100) - prefill)
        add("Decode", math.ceil(prefill * 100 / ratio.max_percent) - decode)
    return wishes


def _told(role: RoleLoad, after: int, need: Need, bounds: RoleBounds) -> tuple[ScalingReason, str]:
    """What decided, and why in words."""
    if after != role.replicas:
        return need.reason, need.message
    if need.instances != role.replicas:
        return "Stabilising", f"{need.instances} are wished for, the pace holds them: {need.message}"
    if need.reason == "Idle":
        return "Idle", need.message
    if need.score > 100 and need.instances == bounds.max_replicas:
        return "AtMaximum", need.message
    return "Steady", ""
