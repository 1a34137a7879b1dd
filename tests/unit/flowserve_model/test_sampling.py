"""Sampling is a pure function whose randomness is (seed, position)."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowserve.model import log_probabilities, sample
from flowserve.model.sampling import candidates, uniform
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


@given(logits, positions, st.integers(0, 2**63 - 1), st.floats(0.01, 1))
def test_min_p_is_relative_to_the_likeliest_token(values: np.ndarray, position: int, seed: int, min_p: float) -> None:
    token = sample(values, Sampling(min_p=min_p, seed=seed), position)
    assert np.exp(float(values[token]) - float(values.max())) >= min_p * (1 - 1e-6)


def test_min_p_comes_before_top_p() -> None:
    drawn = {sample(LOGITS, Sampling(min_p=0.6, top_p=0.8, seed=3), position) for position in range(500)}
    assert drawn == {1, 3}, "0.4 and 0.3 are left, of which 0.4 alone has no 80 %"


GREEDY = Sampling(temperature=0)


@pytest.mark.parametrize(
    ("penalties", "tokens", "expected"),
    [
        ({"presence_penalty": 1.5}, [1], 2),  # 3, 2, 1.5 … minus 1.5 once
        ({"presence_penalty": 0.5}, [1, 1, 1], 1),
        ({"frequency_penalty": 0.5}, [1], 1),
        ({"frequency_penalty": 0.5}, [1, 1, 1], 2),
        ({"frequency_penalty": -1.0}, [2, 2], 2),
        ({"repetition_penalty": 2.0}, [1], 2),
    ],
)
def test_penalties_move_the_greedy_choice(penalties: dict[str, float], tokens: list[int], expected: int) -> None:
    values = np.array([0.0, 3.0, 2.0, -1.0], np.float32)
    assert sample(values, GREEDY.model_copy(update=penalties), 9, [0, *tokens], 1) == expected
    assert values.tolist() == [0.0, 3.0, 2.0, -1.0], "the logits are the caller's"


def test_presence_and_frequency_look_at_the_answer_only_repetition_at_the_prompt_too() -> None:
    values = np.array([0.0, 3.0, 2.0], np.float32)
    for name, penalty, expected in (("presence", 2.0, 1), ("frequency", 2.0, 1), ("repetition", 2.0, 2)):
        params = GREEDY.model_copy(update={f"{name}_penalty": penalty})
        assert sample(values, params, 1, [1], 1) == expected


def test_repetition_makes_negative_logits_more_negative() -> None:
    values = np.array([-1.0, -1.5], np.float32)
    assert sample(values, GREEDY.model_copy(update={"repetition_penalty": 2.0}), 1, [0], 1) == 1


def test_log_probabilities_are_those_of_the_model() -> None:
    told = log_probabilities(LOGITS + 5, token=2, best=2)
    assert told.chosen == pytest.approx(np.log(0.2))
    assert [token for token, _ in told.best] == [1, 3]
    assert [value for _, value in told.best] == pytest.approx(np.log([0.4, 0.3]))
    assert log_probabilities(LOGITS, token=0, best=0).best == ()


@given(logits, st.integers(0, 50))
def test_top_k_takes_the_lower_number_among_equals(values: np.ndarray, count: int) -> None:
    expected = np.argsort(-values, kind="stable")[: count or None]
    tokens, weights = candidates(values, Sampling(top_k=count, top_p=0.999999999999))
    assert tokens.tolist() == expected[: len(tokens)].tolist()
    assert len(weights) == len(tokens)


def test_seed_and_position_both_matter() -> None:
    assert len({uniform(seed, position) for seed in range(20) for position in range(20)}) == 400
    assert uniform(1, 23) != uniform(12, 3), "the two are kept apart"
