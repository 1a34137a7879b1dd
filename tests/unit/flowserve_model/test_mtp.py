"""The MTP layer computes what the reference implementation computes, in both forms of attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from flowserve.cache import BlockPool, SequenceKV
from flowserve.model import CheckpointError, ExpertWeights, LocalExperts, Model, MtpLayer, UnsupportedModel, Weights
from flowserve.model.decode import DecodeAttention
from flowserve.model.prefill import PrefillAttention

from .checkpoints import Damage
from .driver import finish

Golden = Mapping[str, np.ndarray]
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def mtp(weights: Weights, model: Model) -> MtpLayer:
    return MtpLayer(weights, model)


@pytest.fixture(scope="module")
def experts(weights: Weights, mtp: MtpLayer) -> LocalExperts:
    return LocalExperts(ExpertWeights(weights, layers=[mtp.number]))


@pytest.fixture
def deep_pool(model: Model, mtp: MtpLayer) -> BlockPool:
    pool = model.new_pool(8, 16, mtp=True)
    assert pool.layers == mtp.number + 1
    return pool


@pytest.mark.parametrize("row", [0, 1])
def test_logits_are_those_of_the_reference(
    model: Model, mtp: MtpLayer, experts: LocalExperts, deep_pool: BlockPool, golden: Golden, row: int
) -> None:
    hidden, following = golden["final_hidden"][row][:-1], golden["input_ids"][row][1:].astype(np.int32)
    seq = SequenceKV(deep_pool)
    seq.append(len(following))
    attention = PrefillAttention(seq, model.rotations(np.arange(len(following), dtype=np.int32)))
    logits = mtp.logits(finish(mtp.forward(hidden, following, attention, experts, len(following))))
    np.testing.assert_allclose(logits, golden["mtp_logits"][row], rtol=0, atol=TOLERANCE)


def test_drafts_one_by_one_are_those_of_the_reference(
    model: Model, mtp: MtpLayer, experts: LocalExperts, deep_pool: BlockPool, golden: Golden
) -> None:
    sequences = [SequenceKV(deep_pool), SequenceKV(deep_pool)]
    following = golden["input_ids"].astype(np.int32)
    for position in range(golden["mtp_logits"].shape[1]):
        for seq in sequences:
            seq.append(1)
        attention = DecodeAttention(sequences, [position] * 2, model.rotations(np.full(2, position, np.int32)))
        rows = mtp.forward(golden["final_hidden"][:, position], following[:, position + 1], attention, experts, 2)
        logits = mtp.logits(finish(rows))
        np.testing.assert_allclose(logits, golden["mtp_logits"][:, position], rtol=0, atol=TOLERANCE)


def test_reading_leaves_the_same_rows_as_drafting_does(
    model: Model, mtp: MtpLayer, experts: LocalExperts, deep_pool: BlockPool, golden: Golden
) -> None:
    hidden, following = golden["final_hidden"][0][:-1], golden["input_ids"][0][1:].astype(np.int32)
    read, drafted = SequenceKV(deep_pool), SequenceKV(deep_pool)
    for each in (read, drafted):
        each.append(len(following))
    for first in range(0, len(following), 5):
        chunk = slice(first, first + 5)
        mtp.read(model, hidden[chunk], following[chunk], first, read)
    attention = PrefillAttention(drafted, model.rotations(np.arange(len(following), dtype=np.int32)))
    finish(mtp.forward(hidden, following, attention, experts, len(following)))
    np.testing.assert_allclose(read.read(mtp.number), drafted.read(mtp.number), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("wanted", [[2], [0, 2], [0, 1, 2]])
def test_rows_that_are_wanted_are_the_same_without_the_others(
    model: Model, mtp: MtpLayer, experts: LocalExperts, deep_pool: BlockPool, golden: Golden, wanted: list[int]
) -> None:
    seq, tokens = SequenceKV(deep_pool), golden["input_ids"][0][1:4].astype(np.int32)
    seq.append(3)
    rows = golden["final_hidden"][0][:3], tokens, np.arange(3, dtype=np.int32), [seq] * 3
    every = finish(mtp.step(model, *rows, np.arange(3), experts))
    np.testing.assert_array_equal(finish(mtp.step(model, *rows, np.array(wanted), experts)), every[wanted])


def test_rounded_weights_draft_nearly_the_same(
    weights: Weights, model: Model, mtp: MtpLayer, deep_pool: BlockPool, golden: Golden
) -> None:
    rough = MtpLayer(weights.rounded(), model)
    experts = LocalExperts(ExpertWeights(weights.rounded(), layers=[rough.number]))
    hidden, following = golden["final_hidden"][0][:-1], golden["input_ids"][0][1:].astype(np.int32)
    seq = SequenceKV(deep_pool)
    seq.append(len(following))
    attention = PrefillAttention(seq, model.rotations(np.arange(len(following), dtype=np.int32)))
    logits = rough.logits(finish(rough.forward(hidden, following, attention, experts, len(following))))
    exact = golden["mtp_logits"][0]
    assert np.linalg.norm(logits - exact) < 0.1 * np.linalg.norm(exact)
    assert not weights.rounds, "the model's own weights stay as they are"


def test_a_checkpoint_without_the_layers_tensors_is_refused(copy_of_tiny: Callable[[Damage], Path]) -> None:
    weights = Weights.open(copy_of_tiny(lambda _: None))
    model = Model(weights, 1)
    with pytest.raises(CheckpointError, match=r"model\.layers\.4\.embed_tokens\.weight is missing"):
        MtpLayer(weights, model)


def test_a_model_without_mtp_is_refused(copy_of_tiny: Callable[[Damage], Path]) -> None:
    directory = copy_of_tiny(lambda _: None)
    config = directory / "config.json"
    config.write_text(config.read_text().replace('"num_nextn_predict_layers": 1', '"num_nextn_predict_layers": 0'))
    weights = Weights.open(directory)
    model = Model(weights, 1)
    with pytest.raises(UnsupportedModel, match="num_nextn_predict_layers is 0"):
        MtpLayer(weights, model)


def test_copies_of_a_weight_are_known_as_such(weights: Weights) -> None:
    assert weights.alike("model.layers.4.embed_tokens", "model.embed_tokens")
    assert not weights.alike("model.layers.4.embed_tokens", "lm_head")
