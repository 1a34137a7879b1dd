"""Tokens are the same with and without drafts, whatever is drafted, and drafts leave nothing behind."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowserve.cache import SequenceKV
from flowserve.engine.decoding import Decoding, Drafter, Run
from flowserve.engine.drafting import MtpDrafter
from flowserve.engine.sequence import Sequence
from flowserve.model import Experts, ExpertWeights, FloatArray, IntArray, LocalExperts, Model, MtpLayer, Weights
from flowserve.wire import FinishReason, GenerateRequest, Sampling
from xccl import Steps, run

AUSTEN = Path(__file__).parents[3] / "examples/models/austen-deepseek-v3"
PROMPT = (0, 40, 60, 300, 301, 305, 9, 500)
GREEDY = Sampling(temperature=0)
NO_END = frozenset[int]()
LENGTH = 24


class World:
    """One model with all that belongs to it."""

    def __init__(self) -> None:
        weights = Weights.open(AUSTEN)
        self.model = Model(weights, max_batch=1024)
        self.mtp = MtpLayer(weights, self.model)
        self.layers = (*weights.config.moe_layers, self.mtp.number)
        self.experts = LocalExperts(ExpertWeights(weights, layers=self.layers))
        self.pool = self.model.new_pool(2048, 4, mtp=True)

    def sequence(self, max_tokens: int = LENGTH, **wish: object) -> Sequence:
        """A sequence whose prompt was read, and whose first token is chosen."""
        wish = {"sampling": GREEDY, **wish}
        request = GenerateRequest(request_id="r", prompt=PROMPT, max_tokens=max_tokens, **wish)  # type: ignore[arg-type]
        sequence = Sequence(1, request, SequenceKV(self.pool), 0)
        tokens = np.array(PROMPT, np.int32)
        hidden = run(self.model.read(tokens, 0, sequence.kv, self.experts), timeout=60)
        sequence.add(sequence.choose(self.model.logits(hidden[-1:])[0]))
        following = np.array(sequence.tokens[1:], np.int32)
        self.mtp.read(self.model, hidden, following, 0, sequence.kv)
        sequence.computed = len(PROMPT)
        return sequence

    def decode(
        self, batch: list[Sequence], drafter: Drafter | None, ends: frozenset[int] = NO_END
    ) -> list[tuple[int, int]]:
        """Runs all to their ends; of each iteration and sequence, how much was drafted and how much accepted."""
        decoding, pattern = Decoding(self.model, ends, drafter), []
        while live := [each for each in batch if each.finish_reason(ends) is None]:
            advances = run(decoding.step(live, self.experts), timeout=60)
            pattern += [(len(each.sequence.drafts), len(each.chosen) - 1) for each in advances]
            for advance in advances:
                advance.commit()
                advance.sequence.rollback()
        return pattern


@dataclass
class Scripted:
    """Drafts the truth as far as ``pattern`` says, then lies."""

    truth: list[int]
    pattern: list[tuple[int, int]]  # how many to draft, and how many of them are right
    drafted: list[int] = field(default_factory=list)

    def draft(self, runs: list[Run], experts: Experts) -> Steps[list[tuple[int, ...]]]:
        yield from ()
        return [self._guess(each) for each in runs]

    def _guess(self, run: Run) -> tuple[int, ...]:
        many, right = self.pattern[len(self.drafted) % len(self.pattern)]
        at = len(run.sequence.tokens) + len(run.chosen)
        truth = self.truth[at : at + min(many, run.wanted)]
        guess = tuple(token if i < right else (token + 1) % 2048 for i, token in enumerate(truth))
        self.drafted.append(len(guess))
        return guess


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture(scope="module")
def plain(world: World) -> Sequence:
    """What is decoded greedily without drafts."""
    sequence = world.sequence()
    world.decode([sequence], None)
    return sequence


@given(pattern=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=6))
@settings(max_examples=20, deadline=None)
def test_every_pattern_of_acceptance_gives_the_same_tokens_and_kv(
    world: World, plain: Sequence, pattern: list[tuple[int, int]]
) -> None:
    sequence, drafter = world.sequence(), Scripted(plain.tokens, pattern)
    found = world.decode([sequence], drafter)
    assert sequence.tokens == plain.tokens
    assert sequence.kv.length == sequence.computed == len(sequence.tokens) - 1
    depth = world.mtp.number
    np.testing.assert_array_equal(sequence.kv.export()[:depth], plain.kv.export()[:depth])
    expected = [(0, 0)] + [(n, min(n, pattern[i % len(pattern)][1])) for i, n in enumerate(drafter.drafted[:-1])]
    assert found == expected
    held = world.pool.usage
    sequence.kv.free()
    assert world.pool.usage < held


@pytest.mark.parametrize("most", [1, 3])
def test_the_model_s_own_drafts_change_nothing_and_are_often_right(world: World, plain: Sequence, most: int) -> None:
    sequence = world.sequence()
    pattern = world.decode([sequence], MtpDrafter(world.model, world.mtp, most))
    assert sequence.tokens == plain.tokens
    assert max(drafted for drafted, _ in pattern) == most
    assert sum(accepted for _, accepted in pattern) >= LENGTH // 4
    depth = world.mtp.number
    np.testing.assert_array_equal(sequence.kv.export()[:depth], plain.kv.export()[:depth])
    sequence.kv.free()


def test_what_the_mtp_layer_keeps_is_what_it_keeps_of_a_text_read_at_once(world: World) -> None:
    sequence, once = world.sequence(), SequenceKV(world.pool)
    world.decode([sequence], MtpDrafter(world.model, world.mtp, 2))
    known = sequence.tokens[: sequence.computed - 3]  # the layer does not read where nothing is left to draft
    hidden = run(world.model.read(np.array(known, np.int32), 0, once, world.experts), timeout=60)
    following = np.array(sequence.tokens[1 : len(known) + 1], np.int32)
    world.mtp.read(world.model, hidden, following, 0, once)
    layer = world.mtp.number
    np.testing.assert_allclose(sequence.kv.read(layer)[: len(known)], once.read(layer), rtol=0, atol=1e-4)
    sequence.kv.free()
    once.free()


def test_sampled_tokens_and_penalties_are_the_same_too(world: World) -> None:
    for seed in range(2):
        wish = {"sampling": Sampling(temperature=0.8, top_p=0.9, frequency_penalty=0.5, seed=seed), "logprobs": 1}
        sequences = [world.sequence(**wish) for _ in range(2)]  # type: ignore[arg-type]
        world.decode(sequences[:1], None)
        world.decode(sequences[1:], MtpDrafter(world.model, world.mtp, 2))
        assert sequences[0].tokens == sequences[1].tokens
        assert sequences[0].logprobs == sequences[1].logprobs
        for each in sequences:
            each.kv.free()


def test_an_end_inside_an_accepted_run_is_the_last_token(world: World, plain: Sequence) -> None:
    answer = plain.tokens[len(PROMPT) :]
    end = next(token for token in answer[3:] if answer.index(token) >= 3)
    upto = len(PROMPT) + answer.index(end) + 1
    all_right = Scripted(plain.tokens, [(8, 8)])
    for ends, stops, reason in ((frozenset({end}), (), "stop"), (NO_END, (end,), "stop")):
        sequence = world.sequence(stop_token_ids=stops)
        world.decode([sequence], all_right, ends)
        assert sequence.tokens == plain.tokens[:upto]
        assert sequence.finish_reason(ends) == reason
        assert sequence.kv.length == sequence.computed == len(sequence.tokens) - 1
        sequence.kv.free()


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 5])
def test_no_more_is_drafted_than_the_length_allows(world: World, plain: Sequence, max_tokens: int) -> None:
    drafters: list[Drafter] = [Scripted(plain.tokens, [(8, 8)]), MtpDrafter(world.model, world.mtp, 4)]
    for drafter in drafters:
        sequence = world.sequence(max_tokens=max_tokens)
        pattern = world.decode([sequence], drafter)
        reason: FinishReason | None = sequence.finish_reason(NO_END)
        assert (sequence.tokens, reason) == (plain.tokens[: len(PROMPT) + max_tokens], "length")
        assert all(drafted < max_tokens for drafted, _ in pattern)
        assert len(sequence.kv.blocks) <= world.pool.blocks_for(len(PROMPT) + max_tokens)
        sequence.kv.free()


def test_ranks_with_different_drafts_meet_in_the_same_collectives(world: World) -> None:
    met: list[list[int]] = []

    def experts(layer: int, x: FloatArray, expert_ids: IntArray, weights: FloatArray) -> Steps[FloatArray]:
        met[-1].append(layer)
        return world.experts(layer, x, expert_ids, weights)

    decoding = Decoding(world.model, NO_END, MtpDrafter(world.model, world.mtp, 2))
    batch = [world.sequence(), world.sequence(max_tokens=2), world.sequence(max_tokens=3)]
    for live in ([], batch[:1], batch, batch[1:2]):
        met.append([])
        run(decoding.step(live, experts), timeout=60)
        for each in live:
            each.rollback()
    assert met == [[*world.layers, world.mtp.number]] * 4
    for each in batch:
        each.kv.free()


def test_sampled_tokens_have_the_model_s_distribution(world: World) -> None:
    """The token behind a draft's, over many seeds, against the probabilities that the model gives."""
    start, runs, temperature = world.sequence(), 400, 2.0  # hot, so that all four tokens are expected often enough
    fed = np.array(start.tokens[-1:]), np.array([start.computed])
    logits = run(world.model.decode(*fed, [start.kv], world.experts), timeout=60)[0].astype(np.float64) / temperature
    start.rollback()
    draft, batch = int(logits.argmax()), []
    for seed in range(runs):
        wish = {"sampling": Sampling(temperature=temperature, top_k=4, seed=seed)}
        one = Sequence(seed, start.request.model_copy(update=wish), start.kv.fork(), 0, computed=start.computed)
        one.tokens, one.drafts = [*start.tokens], (draft,)
        batch.append(one)
    advances = run(Decoding(world.model, NO_END).step(batch, world.experts), timeout=60)
    for one in (start, *batch):
        one.kv.free()

    seen = Counter(advance.chosen[0].token for advance in advances)
    best = np.argsort(logits)[-4:]
    shares = np.exp(logits[best]) / np.exp(logits[best]).sum()
    assert runs * shares.min() > 10, "chi-squared wants more than a few of each"
    squares = sum((seen[token] - runs * p) ** 2 / (runs * p) for token, p in zip(best.tolist(), shares, strict=True))
    assert squares < 16.3, "chi-squared, three degrees of freedom, one in a thousand"
    assert sum(len(advance.chosen) > 1 for advance in advances) == seen[draft]
