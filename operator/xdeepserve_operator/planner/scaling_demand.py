"""How many instances a role needs for what it has to do now.

Load and cache give absolute numbers: sequences, running or waiting, over what an instance takes at the aimed share of
its slots; KV in use over the aimed share of an instance's cache. A decode instance has the slots of its batch; a
prefill instance has one for each DP group, whatever its batch: prefill is bound by compute, a second prompt only makes
the first one later. Sequences are a mean over a short while, or every arrival would be a wish. Nothing of this depends
on how many instances were asked for, so one that cannot be placed neither hides load nor holds up scaling down.

Latency only pushes up. A TTFT above its objective asks for more prefill, unless the queue stands before decode; a TPOT
above its objective for more decode. It asks in proportion, at most for twice of what serves, and only where it can
help: more than one sequence for each DP group (one alone will not be faster on more instances), and no instance still
to come from the last wish. Near its objective (90 %) it keeps what there is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from xdeepserve_operator.api.v1alpha1.base import RoleType
from xdeepserve_operator.api.v1alpha1.scaling import ScalingReason
from xdeepserve_operator.planner.scaling_latency import Latency

ENOUGH_ANSWERS = 5
NEAR = 0.9
MOST_GROWTH = 2.0


@dataclass(frozen=True, slots=True)
class RoleLoad:
    """What a role shows. ``batch``: sequences of one instance; ``kv_usage``: mean over instances that serve, 0 to 1."""

    name: str
    type: RoleType
    replicas: int  # asked for
    serving: int
    groups: int  # DP groups of an instance
    batch: int
    running: float = 0.0
    waiting: float = 0.0
    kv_usage: float = 0.0
    silent: int = 0  # serving, but not heard

    @property
    def sequences(self) -> float:
        """What it has to do."""
        return self.running + self.waiting

    @property
    def slots(self) -> int:
        """Sequences that an instance works on at once without making each other wait."""
        return self.groups if self.type == "Prefill" else self.batch


def mean_of(samples: Sequence[RoleLoad]) -> RoleLoad:
    """The newest of ``samples`` with what it has to do as a mean over all."""
    count = len(samples)
    running, waiting = sum(one.running for one in samples) / count, sum(one.waiting for one in samples) / count
    return replace(samples[-1], running=running, waiting=waiting)


@dataclass(frozen=True, slots=True)
class Objective:
    """What is promised and aimed at; milliseconds and percent."""

    ttft: int | None
    tpot: int | None
    load_percent: int
    cache_percent: int


@dataclass(frozen=True, slots=True)
class Need:
    """Instances a role needs, and what decided; ``score``: the need over what serves, in percent."""

    instances: int
    score: int
    reason: ScalingReason
    message: str


def need_of(role: RoleLoad, others: tuple[RoleLoad, ...], latency: Latency, objective: Objective) -> Need:
    """The need of ``role`` beside ``others`` of its deployment."""
    load = math.ceil(role.sequences * 100 / (role.slots * objective.load_percent))
    cache = math.ceil(role.serving * role.kv_usage * 100 / objective.cache_percent)
    need = Need(load, _score(load, role), "Load", f"{role.running:.1f} sequences run, {role.waiting:.1f} wait")
    if cache > need.instances:
        need = Need(cache, _score(cache, role), "Cache", f"{round(role.kv_usage * 100)} % of the KV cache is in use")
    ratio, text = _pressure(role, others, latency, objective)
    helps = role.serving > 0 and role.sequences > role.serving * role.groups
    if ratio > 1 and helps and role.serving >= role.replicas:
        grown = math.ceil(role.serving * min(ratio, MOST_GROWTH))
        if grown > need.instances:
            return Need(grown, round(min(ratio, MOST_GROWTH) * 100), "Latency", text)
    if ratio > NEAR and helps and need.instances < role.replicas:
        return Need(role.replicas, round(min(ratio, MOST_GROWTH) * 100), "Latency", text)
    return need


def _pressure(
    role: RoleLoad, others: tuple[RoleLoad, ...], latency: Latency, objective: Objective
) -> tuple[float, str]:
    """The latency that this role answers for, over its objective; 0 when there is none."""
    if latency.answers < ENOUGH_ANSWERS:
        return 0.0, ""
    found = [(0.0, "")]
    decode = role.type == "Decode"
    if decode and latency.tpot is not None and objective.tpot is not None:
        found.append((latency.tpot / objective.tpot, f"TPOT is {latency.tpot:.0f} ms, objective {objective.tpot} ms"))
    if latency.ttft is not None and objective.ttft is not None:
        queues = {
            kind: sum(one.waiting for one in (role, *others) if one.type == kind) for kind in ("Prefill", "Decode")
        }
        if decode == (queues["Decode"] > queues["Prefill"]):
            ratio = latency.ttft / objective.ttft
            found.append((ratio, f"TTFT is {latency.ttft:.0f} ms, objective {objective.ttft} ms"))
    return max(found)


def _score(instances: int, role: RoleLoad) -> int:
    return round(instances * 100 / max(1, role.serving))
