"""Shaking: kick every layer, let it settle, and keep what became better, layer by layer.

A hot expert sits on dozens of NPUs; one copy more or less changes them all, and looks bad until the partners of its
copies are rearranged. So no single move leads there, but a kick followed by a few exchanges does, in about every third
case. Layers are independent: each keeps or takes back its own.
"""

import numpy as np

from eplb.moments import Moments
from eplb.moves import exchange, kick, reassign

EXCHANGES, REASSIGNS = 4, 2
HOT = 0.3  # share of NPUs that look for a partner while settling


def shake(state: Moments, rng: np.random.Generator, power: int) -> int:
    """One kick; returns how many layers became better."""
    state.scale()
    unit, saved = state.unit, state.snapshot()
    before = state.layer(state.potential(power)).sum(1)
    kick(state, rng, power)
    for softer in (1, 0):
        for _ in range(EXCHANGES // 2):
            exchange(state, rng, power - softer, HOT)
    for _ in range(REASSIGNS):
        if not reassign(state, power):
            break
    for _ in range(EXCHANGES // 2):
        exchange(state, rng, power, HOT)
    state.unit = unit
    worse = state.layer(state.potential(power)).sum(1) > before
    state.restore(saved, np.flatnonzero(worse))
    return int((~worse).sum())
