"""The runtime computes what the reference implementation computes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from flowserve.cache import BlockPool, PrefixCache, SequenceKV
from flowserve.model import FloatArray, IntArray, LocalExperts, Model, Steps, Weights
from flowserve.model.decode import DecodeAttention
from flowserve.model.prefill import PrefillAttention

from .driver import finish

Golden = Mapping[str, np.ndarray]
TOLERANCE = 1e-4


class RecordingExperts:
    """Local experts that remember what the router chose in each layer."""

    def __init__(self, experts: LocalExperts) -> None:
        self.experts = experts
        self.chosen: dict[int, tuple[IntArray, FloatArray]] = {}

    def __call__(self, layer: int, x: FloatArray, expert_ids: IntArray, weights: FloatArray) -> Steps[FloatArray]:
        self.chosen[layer] = (expert_ids, weights)
        return self.experts(layer, x, expert_ids, weights)


def tokens_of(golden: Golden, name: str, row: int) -> IntArray:
    return golden[name][row].astype(np.int32)


def prefill(model: Model, tokens: IntArray, seq: SequenceKV, experts: LocalExperts) -> FloatArray:
    return finish(model.prefill(tokens, seq.length, seq, experts))


@pytest.mark.parametrize("row", [0, 1])
def test_naive_prefill_agrees_in_every_layer(
    model: Model, local: LocalExperts, pool: BlockPool, golden: Golden, row: int
) -> None:
    tokens = tokens_of(golden, "input_ids", row)
    seq = SequenceKV(pool)
    seq.append(len(tokens))
    attention = PrefillAttention(seq, model.rotations(np.arange(len(tokens), dtype=np.int32)))
    x = model.embed(tokens)
    for number, layer in enumerate(model.layers):
        np.testing.assert_allclose(x, golden[f"hidden_{number}"][row], rtol=0, atol=TOLERANCE)
        x = finish(layer.forward(x, attention, local, len(tokens)))

    hidden = finish(model.forward(model.embed(tokens), attention, local, len(tokens)))
    np.testing.assert_allclose(hidden, golden["hidden_4"][row], rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(model.logits(hidden), golden["logits"][row], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("row", [0, 1])
def test_the_same_experts_get_the_same_gates(
    model: Model, local: LocalExperts, pool: BlockPool, golden: Golden, row: int
) -> None:
    recording = RecordingExperts(local)
    tokens = tokens_of(golden, "input_ids", row)
    finish(model.prefill(tokens, 0, SequenceKV(pool), recording))

    assert list(recording.chosen) == [1, 2, 3]
    ours = slice(row * len(tokens), (row + 1) * len(tokens))
    for layer, (experts, gates) in recording.chosen.items():
        np.testing.assert_array_equal(np.sort(experts, axis=1), golden[f"router_idx_{layer}"][ours])
        expected = np.take_along_axis(golden[f"router_dense_{layer}"][ours], experts, axis=1)
        np.testing.assert_allclose(gates, expected, rtol=0, atol=TOLERANCE)


def test_absorbed_decode_agrees_at_every_position(
    model: Model, local: LocalExperts, pool: BlockPool, golden: Golden
) -> None:
    """Both sequences token by token from an empty cache: every logit there is comes from the absorbed form."""
    sequences = [SequenceKV(pool), SequenceKV(pool)]
    tokens = golden["input_ids"].astype(np.int32)
    for position in range(tokens.shape[1]):
        positions = np.full(2, position, np.int32)
        logits = finish(model.decode(tokens[:, position], positions, sequences, local))
        np.testing.assert_allclose(logits, golden["logits"][:, position], rtol=0, atol=TOLERANCE)


def test_greedy_tokens_are_those_of_the_reference(
    model: Model, local: LocalExperts, pool: BlockPool, golden: Golden
) -> None:
    expected = golden["greedy"]
    sequences = [SequenceKV(pool), SequenceKV(pool)]
    last = [int(prefill(model, tokens_of(golden, "greedy", b)[:16], sequences[b], local).argmax()) for b in range(2)]
    answers = [last]
    for position in range(16, expected.shape[1] - 1):
        positions = np.full(2, position, np.int32)
        logits = finish(model.decode(np.array(answers[-1], np.int32), positions, sequences, local))
        answers.append(logits.argmax(axis=1).tolist())
    np.testing.assert_array_equal(np.array(answers).T, expected[:, 16:])


@pytest.mark.parametrize("cuts", [(1,), (16, 32), (5, 6, 40), (47,)])
def test_prefill_in_chunks_equals_prefill_at_once(
    model: Model, local: LocalExperts, pool: BlockPool, golden: Golden, cuts: tuple[int, ...]
) -> None:
    tokens = tokens_of(golden, "input_ids", 0)
    whole, chunked = SequenceKV(pool), SequenceKV(pool)
    expected = prefill(model, tokens, whole, local)
    for chunk in np.split(tokens, cuts):
        logits = prefill(model, chunk, chunked, local)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(chunked.export(), whole.export(), rtol=0, atol=TOLERANCE)


def test_a_prompt_longer_than_one_query_tile_ends_like_decode_by_steps(
    model: Model, local: LocalExperts, pool: BlockPool
) -> None:
    tokens = np.random.default_rng(0).integers(3, 320, 300, dtype=np.int32)
    seq = SequenceKV(pool)
    expected = prefill(model, tokens, seq, local)
    seq.truncate(290)
    for position in range(290, 300):
        logits = finish(model.decode(tokens[position : position + 1], np.array([position], np.int32), [seq], local))
    np.testing.assert_allclose(logits[0], expected, rtol=0, atol=TOLERANCE)


def test_naive_and_absorbed_attention_agree_in_each_layer(
    model: Model, local: LocalExperts, pool: BlockPool, golden: Golden, weights: object
) -> None:
    from flowserve.model.attention import MlaWeights

    tokens = tokens_of(golden, "input_ids", 0)
    seq = SequenceKV(pool)
    prefill(model, tokens, seq, local)
    x = golden["hidden_2"][0, -1:]
    factors = model.rotations(np.array([len(tokens) - 1], np.int32))
    for layer in range(model.config.num_hidden_layers):
        mla = MlaWeights(weights, layer)  # type: ignore[arg-type]
        naive = PrefillAttention(seq, factors)(mla, x)
        absorbed = DecodeAttention([seq], [seq.length - 1], factors)(mla, x)
        np.testing.assert_allclose(absorbed, naive, rtol=0, atol=TOLERANCE)


def test_an_int8_cache_changes_logits_little(
    model: Model, local: LocalExperts, pool: BlockPool, golden: Golden
) -> None:
    small = model.new_pool(num_blocks=64, block_size=16, int8=True)
    tokens, answers = tokens_of(golden, "input_ids", 0), []
    for kind in (pool, small):
        seq = SequenceKV(kind)
        prefill(model, tokens[:-1], seq, local)
        step = model.decode(tokens[-1:], np.array([len(tokens) - 1], np.int32), [seq], local)
        answers.append(finish(step)[0])
    assert 0 < np.linalg.norm(answers[1] - answers[0]) < 0.05 * np.linalg.norm(answers[0])


def test_a_prompt_continues_behind_a_cached_prefix(
    model: Model, local: LocalExperts, pool: BlockPool, golden: Golden
) -> None:
    cache, tokens = PrefixCache(pool, unit=16), tokens_of(golden, "input_ids", 0)
    first, second = SequenceKV(pool), SequenceKV(pool)
    expected = prefill(model, tokens, first, local)
    cache.insert(first, tokens.tolist())
    assert cache.attach(second, tokens.tolist()) == 32
    np.testing.assert_allclose(prefill(model, tokens[32:], second, local), expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("size", [1, 2, 5, 8, 17])
def test_greedy_tokens_are_stable_in_any_batch(
    weights: Weights, local: LocalExperts, golden: Golden, size: int
) -> None:
    """The reference's greedy tokens, whatever batch sizes there are plans for."""
    model = Model(weights, max_batch=17)
    pool, expected = model.new_pool(num_blocks=96, block_size=16), golden["greedy"]
    sequences = [SequenceKV(pool) for _ in range(size)]
    for number, seq in enumerate(sequences):
        prefill(model, tokens_of(golden, "greedy", number % 2)[:16], seq, local)
    for position in range(16, expected.shape[1] - 1):
        tokens = expected[np.arange(size) % 2, position].astype(np.int32)
        logits = finish(model.decode(tokens, np.full(size, position, np.int32), sequences, local))
        np.testing.assert_array_equal(logits.argmax(axis=1), expected[np.arange(size) % 2, position + 1])
