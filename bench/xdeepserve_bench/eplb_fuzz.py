"""Random inputs for the planner: shapes, loads and constraints as bad as they come, and what must hold for every plan.

Each case is a function of its number: one cluster, and twenty layers with a load and a placement in force of their
own. Among them: idle layers, ties, one NPU, more slots than experts times NPUs, huge and tiny counts, one slice,
excluded and slow NPUs, shared experts, pins, groups, move limits, broken placements in force.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eplb import EMPTY, Cluster, LoadWindow, Placement, Unplannable, balance
from eplb.plan import plan
from eplb.policies import Options
from eplb.search import Budget, Rounds

NAMES = ("search", "search", "incremental", "greedy", "activated")
LAYERS = 20  # of a case: each a random input of its own
WORSE = 1e-9  # of the barrier: rounding
ROUNDS = Rounds(2, 4, 4, 3, 6, 0.5)
BRIEF = Budget(ROUNDS, ROUNDS, 2, Rounds(1, 2, 2, 6, 6, 0.5))


@dataclass(frozen=True)
class Verdict:
    """What was wrong with one plan; all zero is right. ``refused``: the input was refused with a reason."""

    duplicates: int = 0
    missing: int = 0
    worse: int = 0
    excess: int = 0
    idle_changed: int = 0
    refused: bool = False

    @property
    def faults(self) -> int:
        """Everything that must be 0, added up."""
        return self.duplicates + self.missing + self.worse + self.excess + self.idle_changed


def check(number: int) -> Verdict:
    """Plans case ``number`` and judges the plan."""
    rng = np.random.default_rng([7, number])
    try:
        return _check(rng)
    except Unplannable:
        return Verdict(refused=True)


def _check(rng: np.random.Generator) -> Verdict:
    layers, experts = LAYERS, int(rng.integers(1, 13))
    cluster = _cluster(rng, experts)
    window = LoadWindow.of(_load(rng, layers, experts), top_k=2)
    current = _current(rng, layers, experts, cluster)
    name = str(rng.choice(NAMES))
    limited = name == "incremental" or (name == "search" and rng.random() < 0.3)
    moves = int(rng.integers(0, 5)) if limited and current else None
    pinned = None
    if current is not None and rng.random() < 0.2:
        pinned = rng.random((cluster.npus, cluster.width)) < 0.3
    options = Options(BRIEF, seed=int(rng.integers(100)), moves=moves)
    result = plan(window, cluster, current, name=name, options=options, pinned=pinned)
    new = result.placement
    if current is None:
        return Verdict(new.duplicates(), new.missing())
    sound = _sound(current, cluster)
    recent = window.since(result.first)
    worse = balance(recent, new, cluster).layers > balance(recent, current, cluster).layers * (1 + WORSE)
    moved = new.moves_from(current)
    limit = moves if moves is not None else (8 if name == "incremental" else None)
    changed = (new.slots != current.slots).any((1, 2))
    lost_pin = 0 if pinned is None else int((pinned & (current.slots != EMPTY) & (new.slots != current.slots)).sum())
    return Verdict(
        duplicates=new.duplicates(),
        missing=new.missing(),
        worse=int((worse & sound).sum()),
        excess=lost_pin + (0 if limit is None else int((moved[sound] > limit).sum())),
        idle_changed=int((changed & window.idle & sound).sum()),
    )


def _cluster(rng: np.random.Generator, experts: int) -> Cluster:
    npus = int(rng.choice([1, 2, 3, 4, 6, 8, 12]))
    most = -(-experts // npus) + int(rng.integers(0, 4))
    if rng.random() < 0.1:
        most = experts + 2  # more slots than experts on every NPU
    slots = most if rng.random() < 0.7 else [int(one) for one in rng.integers(0, most + 2, npus)]
    excluded = frozenset(np.flatnonzero(rng.random(npus) < 0.15).tolist()) if rng.random() < 0.3 else frozenset()
    speeds = rng.uniform(0.3, 2.0, npus).tolist() if rng.random() < 0.2 else None
    shared = np.flatnonzero(rng.random(npus) < 0.3).tolist() if rng.random() < 0.2 else []
    servers, groups = 1, 1
    if rng.random() < 0.25:
        servers = int(rng.choice([one for one in (1, 2, 3, 4) if npus % one == 0]))
        groups = servers * int(rng.integers(1, 3))
    return Cluster(npus, slots, excluded, speeds, shared, servers, groups)


def _load(rng: np.random.Generator, layers: int, experts: int) -> NDArray[np.float64]:
    slices = int(rng.choice([1, 2, 5, 12]))
    shape = (slices, layers, experts)
    kind = int(rng.integers(6))
    if kind == 0:
        load = np.full(shape, float(rng.integers(0, 3)))
    elif kind == 1:
        load = rng.integers(0, 3, shape).astype(float)
    elif kind == 2:
        load = rng.integers(0, 2**62, shape).astype(float)
    elif kind == 3:
        load = np.floor(rng.lognormal(0, 3, shape) * 100)
    elif kind == 4:
        load = rng.poisson(rng.lognormal(3, 1.5, (1, layers, experts)), shape).astype(float)
    else:
        load = rng.random(shape) * 1e-6
    load[:, rng.random(layers) < 0.15] = 0
    load[rng.random(slices) < 0.1] = 0
    load[:, :, rng.random(experts) < 0.1] = 0
    return load


def _current(rng: np.random.Generator, layers: int, experts: int, cluster: Cluster) -> Placement | None:
    if rng.random() < 0.2:
        return None
    slots = Placement.plain(layers, experts, cluster).slots.copy()
    flat = slots.reshape(layers, -1)
    if rng.random() < 0.7:  # any order, redundant slots filled with anything
        flat[:] = rng.permuted(flat, axis=1)
        slots[~np.broadcast_to(cluster.open_slots(), slots.shape)] = EMPTY
        empty = (slots == EMPTY) & cluster.open_slots()
        slots[empty] = rng.integers(0, experts, int(empty.sum()))
    return Placement(slots, experts)


def _sound(current: Placement, cluster: Cluster) -> NDArray[np.bool_]:
    sound = np.zeros(current.layers, np.bool_)
    for layer in range(current.layers):
        try:
            Placement(current.slots[layer : layer + 1], current.experts).check(cluster)
        except Unplannable:
            continue
        sound[layer] = True
    return sound
