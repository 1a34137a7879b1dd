"""The moves of the search, each over all layers at once: exchange two slots, or give a slot to another expert.

``exchange`` pairs hot NPUs with cool ones, at random among the likely, and takes for every pair the best of all
exchanges of their slots, if it lowers the potential. Pairs are disjoint, so all of them may be taken together.

``reassign`` changes how many copies two experts have. A copy less makes an expert's other copies heavier, one more
lighter; both are known exactly for every slot. The few best slots to give up and the few experts that would relieve
most are combined, and the best combination of each layer is taken if the potential really falls.

``kick`` does so at random, without asking whether it helps: a way out of where no single move does.

Under a move limit, moves away from home cost, moves back pay, and none is taken that would exceed the limit.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eplb.state import Ints, State

ENOUGH = np.float32(1e-5)  # a smaller relative gain is not worth a move
CANDIDATES = 8  # experts that may get a slot; twice as many slots are considered
DARING = np.float32(0.3)  # of a kick: how much worse than the best a candidate may look, in potential


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
    if not count:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    heat = state.heat()
    noise = rng.standard_normal(heat.shape, dtype=np.float32)
    # Hottest last; within the two parts the order is arbitrary, which is as good as random.
    noise *= (np.float32(jitter) * heat.std(1))[:, None]
    order = np.argpartition(heat + noise, npus - count, axis=1)
    cool = order[:, : npus - count]
    partner = np.roll(cool, int(rng.integers(npus - count)), axis=1)[:, :count]
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
    potential = state.potential(power)
    before = state.layer(potential).sum(1)
    offer = _offers(state, power, potential)
    slot, npu, chosen = offer.slots, offer.npus, offer.experts
    after = state.refilled(npu, slot, chosen, power) - potential[npu][:, None]
    after += offer.loss[:, None] + offer.relief
    if state.limit:
        cost = state.strange(npu[:, None], chosen).astype(np.int8) - state.strange(npu, state.plan[slot, npu])[:, None]
        after += np.float32(state.limit.price) * cost
        after[cost > np.maximum(state.moves_left(), 0)] = np.inf
    layers, slot, npu, expert = _pick(offer, after, -ENOUGH * before)
    if not len(layers):
        return 0
    old = state.plan[slot, npu]
    price = np.zeros(len(layers), np.float32)
    if state.limit:
        more = state.strange(npu, expert).astype(np.float32) - state.strange(npu, old)
        price += np.float32(state.limit.price) * more
    state.plan[slot, npu] = expert
    state.recount(layers, old, expert)
    worse = state.layer(state.potential(power)).sum(1)[layers] + price > before[layers]
    if worse.any():
        state.plan[slot[worse], npu[worse]] = old[worse]
        state.recount(layers[worse], expert[worse], old[worse])
    return int(len(layers) - worse.sum())


def kick(state: State, rng: np.random.Generator, power: int) -> None:
    """A change of copies in each layer, at random among those that do not look too bad, for better or worse."""
    state.scale()
    offer = _offers(state, power, state.potential(power), rng)
    batch = np.arange(state.batch)
    chance = rng.random((len(offer.slots), len(offer.experts), state.batch), dtype=np.float32)
    chance += np.where(np.isfinite(offer.loss[:, None] + offer.relief), np.float32(0), np.float32(np.inf))
    layers, slot, npu, expert = _pick(offer, chance, np.ones(len(batch), np.float32))
    old = state.plan[slot, npu]
    state.plan[slot, npu] = expert
    state.recount(layers, old, expert)


@dataclass(frozen=True, eq=False)
class _Offers:
    """Slots that may be given up, ``slots`` and ``npus`` [P, B], at ``loss`` [P, B] to the expert's other holders; and
    ``experts`` [Q, B] that may get one, with ``relief`` [P, Q, B] of theirs, inf where they cannot."""

    slots: Ints
    npus: Ints
    loss: NDArray[np.float32]
    experts: Ints
    relief: NDArray[np.float32]


def _offers(
    state: State, power: int, potential: NDArray[np.float32], rng: np.random.Generator | None = None
) -> _Offers:
    """The best slots and experts by potential; with ``rng``, those that are best with some luck."""
    fewer, more, without = state.regrown(power)
    experts = state.first_expert + state.plan
    size = state.batch * state.stride
    loss = np.bincount(experts.ravel(), (fewer - potential).ravel(), size)
    relief = np.bincount(experts.ravel(), (more - potential).ravel(), size).reshape(state.batch, state.stride)
    elsewhere = (loss.take(experts) - (fewer - potential)).astype(np.float32)
    elsewhere[(state.copies.take(experts) <= 1) | state.fixed] = np.inf
    elsewhere[(state.plan == state.experts) & ~state.fixed] = 0
    change = elsewhere + (without - potential)
    relief[state.copies.reshape(state.batch, -1) >= state.most[:, None]] = np.inf
    relief[:, state.experts] = np.inf
    rank = relief
    if rng is not None:
        change += DARING * rng.standard_exponential(change.shape, dtype=np.float32)
        rank = relief + DARING * rng.standard_exponential(relief.shape, dtype=np.float32)
    slot, npu = _best_slots(state, change)
    few = min(CANDIDATES, state.experts)
    chosen = np.argpartition(rank, few - 1, axis=1)[:, :few].T
    gain = np.broadcast_to(np.take_along_axis(relief, chosen.T, 1).T, (len(slot), *chosen.shape)).astype(np.float32)
    gain[(state.plan.take(npu, 1)[:, :, None] == chosen).any(0)] = np.inf
    return _Offers(slot, npu, elsewhere[slot, npu], chosen, gain)


def _pick(offer: _Offers, after: NDArray[np.float32], limit: NDArray[np.float32]) -> tuple[Ints, Ints, Ints, Ints]:
    """Layers whose best value of ``after`` [P, Q, B] is below ``limit`` [B], and its slot, NPU and expert."""
    batch = after.shape[2]
    flat = after.reshape(-1, batch)
    best = flat.argmin(0)
    layers = np.flatnonzero(flat[best, np.arange(batch)] < limit)
    row, column = np.divmod(best[layers], len(offer.experts))
    return layers, offer.slots[row, layers], offer.npus[row, layers], offer.experts[column, layers]


def _best_slots(state: State, change: NDArray[np.float32]) -> tuple[Ints, Ints]:
    """[P, B] each: slots and NPUs where giving the slot up is best."""
    few = min(2 * CANDIDATES, state.npus * state.width)
    change = change.reshape(state.width, state.batch, state.npus).transpose(1, 0, 2).reshape(state.batch, -1)
    slot, npu = np.divmod(np.argpartition(change, few - 1, axis=1)[:, :few].T, state.npus)
    return slot, npu + state.first_npu[:, 0]
