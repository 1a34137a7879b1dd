"""The search's arithmetic: what a move is said to change is what it changes."""

import numpy as np
import pytest

from eplb import Cluster, LoadWindow
from eplb.forecast import forecast
from eplb.moments import Moments
from eplb.moves import exchange, reassign
from eplb.packing import pack
from eplb.problem import Problem, problem
from eplb.slices import Slices
from eplb.state import MoveLimit, State

POWER = 3
LAYERS, NPUS, WIDTH, EXPERTS = 3, 6, 3, 14


def make_problem(seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    window = LoadWindow.of(rng.poisson(rng.lognormal(3, 1, (1, LAYERS, EXPERTS)), (9, LAYERS, EXPERTS)), top_k=2)
    cluster = Cluster(NPUS, WIDTH, speeds=rng.uniform(0.5, 2, NPUS).tolist(), shared_on=[1, 4])
    shape = (LAYERS, NPUS, WIDTH)
    return problem(forecast(window), cluster, 2, np.full(shape, -1), np.zeros(shape, np.bool_))


def make_state(kind: str, seed: int, limit: MoveLimit | None = None) -> State:
    made = make_problem(seed)
    slots = pack(made, made.risk(1.0))
    if limit:
        object.__setattr__(made, "start", slots)
    return Slices(made, slots, limit) if kind == "slices" else Moments(made, slots, 1.0, limit)


@pytest.mark.parametrize("kind", ["moments", "slices"])
def test_an_exchange_is_worth_what_was_foretold(kind: str) -> None:
    state = make_state(kind, 1)
    left, right = np.array([0, 8, 13]), np.array([5, 9, 17])
    foretold = state.swapped(left, right, POWER)
    for one in range(WIDTH):
        for other in range(WIDTH):
            changed = make_state(kind, 1)
            changed.plan[one, left], changed.plan[other, right] = state.plan[other, right], state.plan[one, left]
            changed.refresh(np.concatenate([left, right]))
            potential = changed.potential(POWER)
            assert foretold[one, other] == pytest.approx(potential[left] + potential[right], rel=1e-3)


@pytest.mark.parametrize("kind", ["moments", "slices"])
def test_a_reassignment_is_worth_what_was_foretold(kind: str) -> None:
    state = make_state(kind, 2)
    layers = np.arange(LAYERS)
    npu, slot = layers * NPUS + 2, np.array([0, 1, 2])
    old = state.plan[slot, npu]
    others = [np.setdiff1d(np.arange(EXPERTS), state.plan[:, one])[0] for one in npu]
    new = np.array(others)
    fewer, more, _ = state.regrown(POWER)
    before = state.potential(POWER)
    own = state.refilled(npu[None], slot[None], new[None], POWER)[0, 0]
    expected = before.copy()
    for layer in layers:
        at = np.arange(layer * NPUS, (layer + 1) * NPUS)
        for row in range(WIDTH):
            lost, gained = state.plan[row, at] == old[layer], state.plan[row, at] == new[layer]
            expected[at[lost]] += (fewer - before)[row, at[lost]]
            expected[at[gained]] += (more - before)[row, at[gained]]
    expected[npu] = own
    both = [
        at
        for at in range(LAYERS * NPUS)
        if {old[at // NPUS], new[at // NPUS]} <= set(state.plan[:, at].tolist()) and at not in npu
    ]
    state.plan[slot, npu] = new
    state.recount(layers, old, new)
    exact = np.setdiff1d(np.arange(LAYERS * NPUS), both)  # where both experts live the parts do not simply add up
    assert state.potential(POWER)[exact] == pytest.approx(expected[exact], rel=1e-3)


@pytest.mark.parametrize("kind", ["moments", "slices"])
def test_moves_only_ever_lower_the_potential(kind: str) -> None:
    state = make_state(kind, 3)
    rng = np.random.default_rng(0)
    for step in range(30):
        state.scale()
        before = state.layer(state.potential(POWER)).sum(1)
        exchange(state, rng, POWER) if step % 2 else reassign(state, POWER)
        after = state.layer(state.potential(POWER)).sum(1)
        assert (after <= before * (1 + 1e-4)).all()


@pytest.mark.parametrize("kind", ["moments", "slices"])
def test_what_is_kept_up_to_date_equals_what_is_computed_afresh(kind: str) -> None:
    state = make_state(kind, 4)
    rng = np.random.default_rng(0)
    for _ in range(20):
        exchange(state, rng, POWER)
        reassign(state, POWER)
    made = make_problem(4)
    fresh = Slices(made, state.slots()) if kind == "slices" else Moments(made, state.slots(), 1.0)
    state.scale()
    assert state.copies.tolist() == fresh.copies.tolist()
    assert state.potential(POWER) == pytest.approx(fresh.potential(POWER), rel=1e-3)


@pytest.mark.parametrize("kind", ["moments", "slices"])
@pytest.mark.parametrize("moves", [0, 1, 4])
def test_no_layer_exceeds_its_moves(kind: str, moves: int) -> None:
    limit = MoveLimit(moves, price=0.001)
    state = make_state(kind, 5, limit)
    rng = np.random.default_rng(0)
    for _ in range(40):
        exchange(state, rng, POWER)
        reassign(state, POWER)
        assert (state.moves_left() >= 0).all()
