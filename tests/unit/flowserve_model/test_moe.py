"""Routing keeps its promises for any scores, and experts compute each row as if it were alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowserve.model import ExpertWeights, ModelConfig, Weights, combine, int8, moe, run_experts
from flowserve.model.functional import sigmoid
from flowserve.model.int8 import COMPILED
from flowserve.model.linear import Linear
from flowserve.model.moe import Router
from flowserve.model.weights import expert_name

from .checkpoints import TINY

CONFIG = ModelConfig.load(TINY)


@st.composite
def routings(draw: st.DrawFn) -> tuple[ModelConfig, np.ndarray, np.ndarray]:
    """Sizes that belong together, router outputs f32[T, E] (as the router sees them) and a bias f32[E]."""
    groups = draw(st.integers(1, 6))
    size = draw(st.integers(2, 6))
    kept_groups = draw(st.integers(1, groups))
    kept = draw(st.integers(1, kept_groups * size))
    config = dataclasses.replace(
        CONFIG,
        n_routed_experts=groups * size,
        n_group=groups,
        topk_group=kept_groups,
        num_experts_per_tok=kept,
        norm_topk_prob=draw(st.booleans()),
    )
    draw_number = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from([0.0, 0.1, 1.0, 30.0]))  # 0: every expert ties
    tokens = draw(st.integers(0, 5))
    logits = (draw_number.standard_normal((tokens, groups * size)) * scale).astype(np.float32)
    bias = (draw_number.standard_normal(groups * size) * scale).astype(np.float32)
    return config, logits, bias


@given(routings())
def test_routing_invariants(routing: tuple[ModelConfig, np.ndarray, np.ndarray]) -> None:
    config, logits, bias = routing
    identity = Linear(np.eye(config.n_routed_experts, dtype=np.float32))
    experts, gates = Router(identity, bias, config)(logits)
    size = config.n_routed_experts // config.n_group
    assert experts.shape == gates.shape == (len(logits), config.num_experts_per_tok)
    assert (experts.dtype, gates.dtype) == (np.int32, np.float32)
    affinity = 1.0 / (1.0 + np.exp(-logits.astype(np.float64)))
    for token, (chosen, weights) in enumerate(zip(experts, gates, strict=True)):
        assert len(set(chosen.tolist())) == config.num_experts_per_tok
        assert len({expert // size for expert in chosen.tolist()}) <= config.topk_group
        expected = affinity[token, chosen]
        if config.norm_topk_prob:
            expected = expected / (expected.sum() + 1e-20)
        np.testing.assert_allclose(weights, expected * config.routed_scaling_factor, rtol=1e-3, atol=1e-6)


@given(routings())
def test_the_best_experts_of_the_best_groups_are_chosen(routing: tuple[ModelConfig, np.ndarray, np.ndarray]) -> None:
    config, logits, bias = routing
    experts, _ = Router(Linear(np.eye(config.n_routed_experts, dtype=np.float32)), bias, config)(logits)
    scores = sigmoid(logits) + bias
    grouped = scores.reshape(len(logits), config.n_group, len(bias) // config.n_group)
    for row, chosen in zip(grouped, experts, strict=True):
        worth = np.sort(row, axis=1)[:, -2:].sum(axis=1)
        if len(set(worth.tolist())) < len(worth) or len(set(row.reshape(-1).tolist())) < row.size:
            continue  # ties may go either way
        best_groups = np.argsort(worth)[-config.topk_group :]
        allowed = np.full_like(row, -np.inf)
        allowed[best_groups] = row[best_groups]
        best = np.argsort(allowed.reshape(-1))[-config.num_experts_per_tok :]
        assert set(chosen.tolist()) == set(best.tolist())


@given(routings())
def test_the_interpreted_way_chooses_alike(routing: tuple[ModelConfig, np.ndarray, np.ndarray]) -> None:
    config, logits, bias = routing
    if len(np.unique(sigmoid(logits) + bias)) < logits.size or moe.native is None:
        return  # ties may go either way
    router = Router(Linear(np.eye(config.n_routed_experts, dtype=np.float32)), bias, config)
    experts, gates = router(logits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moe, "native", None)
        others, other_gates = router(logits)
    for row in range(len(logits)):
        found, other = experts[row].argsort(), others[row].argsort()
        np.testing.assert_array_equal(experts[row][found], others[row][other])
        np.testing.assert_allclose(gates[row][found], other_gates[row][other], rtol=1e-6)


def test_the_compiled_router_checks_its_shapes() -> None:
    if moe.native is None:
        pytest.skip("this installation has the interpreted way only")
    scores, experts, gates = np.zeros((2, 8), np.float32), np.zeros((2, 3), np.int32), np.zeros((2, 3), np.float32)
    for wrong in (
        (scores, scores[:1], 4, 2, True, experts, gates),
        (scores, scores, 3, 2, True, experts, gates),
        (scores, scores, 4, 5, True, experts, gates),
        (scores, scores, 4, 1, True, experts, gates),  # two experts to choose three from
        (scores, scores, 4, 2, True, experts, gates[:1]),
        (scores[0], scores[0], 4, 2, True, experts, gates),
    ):
        with pytest.raises(ValueError, match="do not belong together"):
            moe.native.route(*wrong)


def one_by_one(weights: Weights, layer: int, x: np.ndarray, experts: np.ndarray) -> np.ndarray:
    rows = []
    for row, expert in zip(x.astype(np.float64), experts, strict=True):
        name = expert_name(layer, expert)
        gate, up, down = (weights.table(f"{name}.{part}_proj") for part in ("gate", "up", "down"))
        inner = gate @ row
        rows.append(down @ (inner / (1.0 + np.exp(-inner)) * (up @ row)))
    return np.array(rows).reshape(x.shape)


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 64, 300])
def test_each_row_gets_its_own_expert(weights: Weights, all_experts: ExpertWeights, rows: int) -> None:
    draw = np.random.default_rng(rows)
    x = draw.standard_normal((rows, 64)).astype(np.float32)
    experts = draw.zipf(1.5, rows).clip(1, 16).astype(np.int32) - 1  # some have many rows, some none
    expected = one_by_one(weights, 2, x, experts)
    np.testing.assert_allclose(run_experts(all_experts, 2, x, experts), expected, rtol=0, atol=1e-4)


def test_a_row_is_the_same_bit_for_bit_among_any_others(all_experts: ExpertWeights) -> None:
    draw = np.random.default_rng(3)
    x = draw.standard_normal((100, 64)).astype(np.float32)
    experts = draw.integers(0, 4, 100, dtype=np.int32)
    together = run_experts(all_experts, 1, x, experts)
    for row in range(0, 100, 7):
        alone = run_experts(all_experts, 1, x[row : row + 1], experts[row : row + 1])
        np.testing.assert_array_equal(alone[0], together[row])


@pytest.fixture(scope="module")
def rounded_experts(weights: Weights) -> ExpertWeights:
    """The same in INT8, as drafts have them."""
    if not COMPILED:
        pytest.skip("this processor, or this installation, has no fast products of bytes")
    return ExpertWeights(weights.rounded())


@pytest.mark.parametrize("rows", [1, 7, 64, 300])
def test_experts_of_bytes_are_near_those_they_stand_for(
    weights: Weights, rounded_experts: ExpertWeights, rows: int
) -> None:
    draw = np.random.default_rng(rows)
    x = draw.standard_normal((rows, 64)).astype(np.float32)
    experts = draw.zipf(1.5, rows).clip(1, 16).astype(np.int32) - 1
    expected = one_by_one(weights, 2, x, experts)
    found = run_experts(rounded_experts, 2, x, experts)
    assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()


def test_experts_of_bytes_treat_a_row_alike_bit_for_bit_among_any_others(rounded_experts: ExpertWeights) -> None:
    draw = np.random.default_rng(4)
    x = draw.standard_normal((100, 64)).astype(np.float32)
    experts = draw.integers(0, 4, (100, 2), dtype=np.int32)
    together = run_experts(rounded_experts, 1, x, experts).reshape(100, 2, 64)
    for row in range(0, 100, 7):
        alone = run_experts(rounded_experts, 1, x[row : row + 1], experts[row])
        np.testing.assert_array_equal(alone, together[row])


def test_the_compiled_experts_check_their_sizes(rounded_experts: ExpertWeights) -> None:
    packed = rounded_experts.layers[1].packed
    assert packed is not None
    x, slots = np.zeros((2, 64), np.float32), np.zeros(2, np.intp)
    native = int8.native_bytes
    assert native is not None
    for wrong in (
        (x, slots[:1], packed, x.copy()),
        (x[:, :63].copy(), slots, packed, x[:, :63].copy()),
        (x, slots + len(packed), packed, x.copy()),
        (x, slots - 1, packed, x.copy()),
        (x, slots, tuple(each[:5] for each in packed), x.copy()),
        (x, slots, tuple((*each[3:], *each[:3]) for each in packed), x.copy()),
    ):
        with pytest.raises(ValueError, match=r"do not belong together|no such slot|three arrays"):
            native.swiglu(*wrong)


def test_rows_for_experts_held_elsewhere_are_refused(weights: Weights) -> None:
    half = ExpertWeights(weights, range(8))
    with pytest.raises(ValueError, match=r"layer 1: experts \[9, 12\] are not held here"):
        run_experts(half, 1, np.zeros((3, 64), np.float32), np.array([12, 3, 9], np.int32))


def test_combine_is_the_gated_sum() -> None:
    rows = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    gates = np.array([[1, 0, 2], [0, 0, 0.5]], np.float32)
    np.testing.assert_array_equal(combine(rows, gates), [[8, 11], [5, 5.5]])
