"""``plan``: from a window of load to a placement, with what it is expected to gain and what it costs.

Whatever the policy, the result keeps the invariants of ``Placement``, and layer by layer it is never worse, on the
slices planned for, than the placement in force: a layer that would be stays as it is, unless it breaks a rule of the
cluster as that is now. So does a layer without any load.
The slices planned for are those since the last shift of traffic that the window shows.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eplb.balance import Balance, balance
from eplb.checks import FROM_CURRENT, check_input
from eplb.cluster import Cluster
from eplb.cost import EXPERT_BYTES, Cost, Link, cost
from eplb.forecast import forecast
from eplb.hierarchy import deal_out
from eplb.load import LoadWindow
from eplb.placement import EMPTY, Placement
from eplb.policies import Options, Policy, policy
from eplb.problem import Problem, Slots, problem
from eplb.renumber import renumber


@dataclass(frozen=True, eq=False)
class Plan:
    """``before`` and ``cost`` are None without a placement in force. ``changed``: layers that get another placement.

    ``first``: first slice of the window that was planned for; ``half_life``: of the trend found, in slices.
    """

    placement: Placement
    policy: str
    predicted: Balance
    before: Balance | None
    cost: Cost | None
    changed: tuple[int, ...]
    first: int
    half_life: float | None

    @property
    def gain(self) -> float:
        """How much of the barrier is saved, 0 to 1: 1 - predicted / before, means over layers; 0 without a before."""
        return 1 - self.predicted.mean / self.before.mean if self.before else 0.0


def plan(
    window: LoadWindow,
    cluster: Cluster,
    current: Placement | None = None,
    *,
    name: str = "search",
    options: Options | None = None,
    pinned: NDArray[np.bool_] | None = None,
    expert_bytes: int = EXPERT_BYTES,
    link: Link | None = None,
) -> Plan:
    """Plans all layers. ``pinned`` [npus, width], or of every layer: slots of ``current`` that keep their expert.

    Unplannable says what cannot be satisfied and why: too few slots, groups that do not fit, a limit on moves without
    a placement to move from, an NPU that must keep what it may not hold.
    """
    options = options or Options()
    chosen = policy(name)
    limited = name in FROM_CURRENT or options.moves is not None
    check_input(window, cluster, current, pinned, name, options.moves)
    expected = forecast(window)
    start, pins = _start(window, cluster, current, pinned)
    whole = problem(expected, cluster, window.top_k, start, pins)
    sound = _sound(whole, cluster, window.experts)
    if limited and name != "none":
        whole = replace(whole, start=np.where(whole.open, whole.start, EMPTY))
    todo = np.flatnonzero(~(window.idle & sound))
    slots = start.copy()
    if len(todo):
        slots[todo] = _solve(whole.at(todo), cluster, chosen, options, limited)
    recent = window.since(expected.first)
    new = Placement.of(slots, window.experts)
    new.check(cluster)
    if current is None:
        everything = tuple(range(window.layers))
        predicted = balance(recent, new, cluster)
        return Plan(new, name, predicted, None, None, everything, expected.first, expected.half_life)
    before = balance(recent, current, cluster)
    better = balance(recent, new, cluster).layers < before.layers
    keep = sound & ~better
    final = Placement(np.where(keep[:, None, None], current.slots, new.slots), window.experts)
    changed = np.flatnonzero((final.slots != current.slots).any((1, 2)))
    return Plan(
        placement=final,
        policy=name,
        predicted=balance(recent, final, cluster),
        before=before,
        cost=cost(current, final, expert_bytes, link),
        changed=tuple(changed.tolist()),
        first=expected.first,
        half_life=expected.half_life,
    )


def _solve(part: Problem, cluster: Cluster, chosen: Policy, options: Options, limited: bool) -> Slots:
    if cluster.hierarchical:
        servers = deal_out(part, cluster, keep=limited)
        if options.moves is not None:
            options = replace(options, moves=options.moves // cluster.servers)
        slots = servers.merge(np.asarray(chosen(servers.split(part), options)))
    else:
        slots = np.asarray(chosen(part, options))
    if limited or (part.start == EMPTY).all():
        return slots
    return renumber(part, slots, cluster.servers if cluster.hierarchical else 1)


def _sound(whole: Problem, cluster: Cluster, experts: int) -> NDArray[np.bool_]:
    """[layers]: whether the placement in force keeps the invariants under the cluster as it is now."""
    placed = Placement(whole.start.astype(np.int32), experts)
    closed = ((whole.start != EMPTY) & ~whole.open).any((1, 2))
    ordered = np.sort(whole.start, axis=2)
    twice = ((ordered[:, :, 1:] == ordered[:, :, :-1]) & (ordered[:, :, 1:] != EMPTY)).any((1, 2))
    sound = ~closed & ~twice & (placed.copies() > 0).all(1)
    return np.asarray(sound & placed.grouped(cluster) if cluster.hierarchical else sound)


def _start(
    window: LoadWindow, cluster: Cluster, current: Placement | None, pinned: NDArray[np.bool_] | None
) -> tuple[Slots, NDArray[np.bool_]]:
    shape = (window.layers, cluster.npus, cluster.width)
    if current is None:
        return np.full(shape, EMPTY, np.int64), np.zeros(shape, np.bool_)
    start = current.slots.astype(np.int64)
    pins = np.zeros(shape, np.bool_) if pinned is None else np.broadcast_to(pinned, shape) & (start != EMPTY)
    return start, np.array(pins)
