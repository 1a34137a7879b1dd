"""Sampling is a pure function whose randomness is (seed, position)."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowserve.model import sample
from flowserve.model.sampling import uniform
from flowserve.wire import Sampling

LOGITS = np.log(np.array([0.1, 0.4, 0.2, 0.3], np.float32))

logits = st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=40).map(lambda v: np.array(v, np.float32))
positions = st.integers(0, 10_000)


@given(logits, positions)
def test_temperature_zero_is_greedy(values: np.ndarray, position: int) -> None:
    assert sample(values, Sampling(temperature=0), position) == int(values.argmax())


@given(logits, positions, st.integers(0, 2**63 - 1), st.floats(0.01, 2), st.floats(0.01, 1), st.integers(0, 50))
def test_a_replay_draws_the_same_token_from_those_allowed(
    values: np.ndarray, position: int, seed: int, temperature: float, top_p: float, top_k: int
) -> None:
    params = Sampling(temperature=temperature, top_p=top_p, top_k=top_k, seed=seed)
    token = sample(values, params, position)
    assert token == sample(values.copy(), params, position)
    better = int((values > values[token]).sum())
    assert better < (top_k or len(values))
    probabilities = np.exp((values.astype(np.float64) - values.max()) / temperature)
    mass_above = probabilities[values > values[token]].sum() / probabilities.sum()
    assert top_k or mass_above < top_p + 1e-9


@given(logits, positions)
def test_top_k_of_one_is_greedy(values: np.ndarray, position: int) -> None:
    assert sample(values, Sampling(temperature=2, top_k=1, seed=9), position) == int(values.argmax())


def test_tokens_come_as_often_as_they_are_likely() -> None:
    drawn = Counter(sample(LOGITS, Sampling(seed=1), position) for position in range(20_000))
    shares = [drawn[token] / 20_000 for token in range(4)]
    assert shares == pytest.approx([0.1, 0.4, 0.2, 0.3], abs=0.015)


def test_temperature_sharpens() -> None:
    drawn = Counter(sample(LOGITS, Sampling(temperature=0.5, seed=1), position) for position in range(20_000))
    squares = np.array([0.01, 0.16, 0.04, 0.09])
    assert [drawn[token] / 20_000 for token in range(4)] == pytest.approx(squares / squares.sum(), abs=0.015)


def test_top_p_keeps_the_token_that_crosses_it() -> None:
    drawn = {sample(LOGITS, Sampling(top_p=0.5, seed=2), position) for position in range(500)}
    assert drawn == {1, 3}


def test_seed_and_position_both_matter() -> None:
    assert len({uniform(seed, position) for seed in range(20) for position in range(20)}) == 400
    assert uniform(1, 23) != uniform(12, 3), "the two are kept apart"
