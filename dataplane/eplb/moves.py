"""The two moves of the search, each over all layers at once: exchange two slots, or give a slot to another expert.

``exchange`` pairs hot NPUs with cool ones, at random among the likely, and takes for every pair the best of all
exchanges of their slots, if it lowers the potential. Pairs are disjoint, so all of them may be taken together.

``reassign`` changes how many copies two experts have. A copy less makes an expert's other copies heavier, one more
lighter; both are known exactly for every slot. The few best slots to give up and the few experts that would relieve
most are combined, and the best combination of each layer is taken if the potential really falls.

Under a move limit, moves away from home cost, moves back pay, and none is taken that would exceed the limit.
"""

import numpy as np
from numpy.typing import NDArray

from eplb.state import Ints, State

ENOUGH = np.float32(1e-5)  # a smaller relative gain is not worth a move
CANDIDATES = 8  # experts that may get a slot; twice as many slots are considered


def exchange(state: State, rng: np.random.Generator, power: int, hot: float = 0.5, jitter: float = 0.5) -> int:
    """One round over all layers: the share ``hot`` of NPUs, each with a partner; returns exchanges done."""
    state.scale()
    left, right = _pairs(state, rng, hot, jitter)
    if not len(left):
        return 0
    after = state.swapped(left, right, power)
    before = state.potential(power)
    before = before.take(left) + before.take(right)
    plan_l, plan_r = state.plan.take(left, 1), state.plan.take(right, 1)
    same = (plan_l[:, None] == plan_r) & (plan_l != state.experts)[:, None]
    stay_l = same.any(1) | state.fixed.take(left, 1)
    stay_r = same.any(0) | state.fixed.take(right, 1)
    cost = _exchange_cost(state, left, right, plan_l, plan_r) if state.limit else None
    if state.limit and cost is not None:
        after += np.float32(state.limit.price) * cost
    after[stay_l[:, None] | stay_r] = np.inf
    after = after.reshape(-1, len(left))
    best = after.argmin(0)
    each = np.arange(len(left))
    gain = before - after[best, each]
    good = np.flatnonzero(gain > ENOUGH * before)
    if cost is not None:
        moves = cost.reshape(after.shape)[best, each][good]
        good = good[_affordable(state, left[good] // state.npus, gain[good], moves)]
    if not len(good):
        return 0
    slot_l, slot_r = np.divmod(best[good], state.width)
    npu_l, npu_r = left[good], right[good]
    kept = state.plan[slot_l, npu_l]
    state.plan[slot_l, npu_l] = state.plan[slot_r, npu_r]
    state.plan[slot_r, npu_r] = kept
    state.refresh(np.concatenate([npu_l, npu_r]))
    return len(good)


def _pairs(state: State, rng: np.random.Generator, hot: float, jitter: float) -> tuple[Ints, Ints]:
    npus = state.npus
    count = min(max(1, int(npus * hot)), npus // 2)
    heat = state.heat()
    noise = rng.standard_normal(heat.shape, dtype=np.float32)
    order = np.argsort(heat + (np.float32(jitter) * heat.std(1))[:, None] * noise, axis=1)
    cool = order[:, : npus - count]
    partner = np.roll(cool, int(rng.integers(max(1, npus - count))), axis=1)[:, :count]
    return (order[:, npus - count :] + state.first_npu).ravel(), (partner + state.first_npu).ravel()


def _exchange_cost(state: State, left: Ints, right: Ints, plan_l: Ints, plan_r: Ints) -> Ints:
    """[K, K, pairs]: moves more, or fewer, after each exchange."""
    leaving = state.strange(right, plan_l).astype(np.int8) - state.strange(left, plan_l)
    coming = state.strange(left, plan_r).astype(np.int8) - state.strange(right, plan_r)
    return leaving[:, None] + coming


def _affordable(state: State, layers: Ints, gain: NDArray[np.float32], cost: Ints) -> NDArray[np.bool_]:
    """Which of some changes fit together under the limit, best first within each layer."""
    order = np.lexsort((-gain, layers))
    layer, price = layers[order], np.maximum(cost[order], 0).astype(np.int64)
    total = np.cumsum(price)
    starts = np.flatnonzero(np.diff(layer, prepend=-1))
    before = np.repeat(total[starts] - price[starts], np.diff(starts, append=len(layer)))
    fits = np.empty(len(layers), np.bool_)
    fits[order] = total - before <= state.moves_left()[layer]
    return fits


def reassign(state: State, power: int) -> int:
    """The best change of copies in each layer; returns how many layers changed."""
    state.scale()
    batch = state.batch
    potential = state.potential(power)
    before = state.layer(potential).sum(1)
    fewer, more, without = state.regrown(power)
    experts = state.first_expert + state.plan
    size = batch * state.stride
    loss = np.bincount(experts.ravel(), (fewer - potential).ravel(), size)
    relief = np.bincount(experts.ravel(), (more - potential).ravel(), size).reshape(batch, state.stride)
    elsewhere = (loss.take(experts) - (fewer - potential)).astype(np.float32)
    elsewhere[(state.copies.take(experts) <= 1) | state.fixed] = np.inf
    elsewhere[(state.plan == state.experts) & ~state.fixed] = 0
    slot, npu = _best_slots(state, elsewhere + (without - potential))
    relief[state.copies.reshape(batch, -1) >= state.most[:, None]] = np.inf
    relief[:, state.experts] = np.inf
    few = min(CANDIDATES, state.experts)
    chosen = np.argpartition(relief, few - 1, axis=1)[:, :few].T
    after = state.refilled(npu, slot, chosen, power) - potential[npu][:, None]
    after += elsewhere[slot, npu][:, None]
    after += np.take_along_axis(relief, chosen.T, 1).T.astype(np.float32)
    after[(state.plan.take(npu, 1)[:, :, None] == chosen).any(0)] = np.inf
    if state.limit:
        cost = state.strange(npu[:, None], chosen).astype(np.int8) - state.strange(npu, state.plan[slot, npu])[:, None]
        after += np.float32(state.limit.price) * cost
        after[cost > np.maximum(state.moves_left(), 0)] = np.inf
    after = after.reshape(-1, batch)
    best = after.argmin(0)
    layers = np.flatnonzero(after[best, np.arange(batch)] < -ENOUGH * before)
    if not len(layers):
        return 0
    row, column = np.divmod(best[layers], few)
    return _reassign(state, power, layers, slot[row, layers], npu[row, layers], chosen[column, layers], before)


def _best_slots(state: State, change: NDArray[np.float32]) -> tuple[Ints, Ints]:
    """[P, B] each: slots and NPUs where giving the slot up is best."""
    few = min(2 * CANDIDATES, state.npus * state.width)
    change = change.reshape(state.width, state.batch, state.npus).transpose(1, 0, 2).reshape(state.batch, -1)
    slot, npu = np.divmod(np.argpartition(change, few - 1, axis=1)[:, :few].T, state.npus)
    return slot, npu + state.first_npu[:, 0]


def _reassign(
    state: State, power: int, layers: Ints, slot: Ints, npu: Ints, expert: Ints, before: NDArray[np.float32]
) -> int:
    old = state.plan[slot, npu]
    price = np.zeros(len(layers), np.float32)
    if state.limit:
        price += np.float32(state.limit.price) * (
            state.strange(npu, expert).astype(np.float32) - state.strange(npu, old)
        )
    state.plan[slot, npu] = expert
    state.recount(layers, old, expert)
    worse = state.layer(state.potential(power)).sum(1)[layers] + price > before[layers]
    if worse.any():
        state.plan[slot[worse], npu[worse]] = old[worse]
        state.recount(layers[worse], expert[worse], old[worse])
    return int(len(layers) - worse.sum())
