"""A quantised checkpoint is served like any other, close to what it was made from, in a fraction of the memory."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from flowserve.cache import SequenceKV
from flowserve.model import ExpertWeights, LocalExperts, Model, Weights
from flowserve.model.checkpoint import Checkpoint
from flowserve.quant.calibration import TooFewSamples
from flowserve.quant.convert import quantise
from xccl import run
from xdeepserve_cli.main import app

TINY = Path(__file__).parents[3] / "examples/models/tiny-deepseek-v3"
TEXT = np.random.default_rng(3).integers(3, 320, 6144, dtype=np.int32)


@pytest.fixture(scope="module")
def int8(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("int8")
    counts = quantise(TINY, target, TEXT)
    assert all(min(row) >= 4 for row in counts.values())
    assert [sum(row) for row in counts.values()] == [len(TEXT) * 4] * 3
    return target


def logits(directory: Path) -> np.ndarray:
    """After each of 100 short prompts: one token that takes another expert must not spoil those after it."""
    weights = Weights.open(directory)
    model, experts = Model(weights, max_batch=2), LocalExperts(ExpertWeights(weights))
    draw, sequence, rows = np.random.default_rng(9), SequenceKV(model.new_pool(8, 16)), []
    for _ in range(100):
        rows.append(run(model.prefill(draw.integers(3, 320, 4, dtype=np.int32), 0, sequence, experts), timeout=10))
        sequence.free()
    return np.array(rows)


def test_its_logits_are_close(int8: Path) -> None:
    before, after = logits(TINY), logits(int8)
    errors = np.linalg.norm(after - before, axis=1) / np.linalg.norm(before, axis=1)
    assert np.median(errors) < 0.06
    assert (after.argmax(axis=1) == before.argmax(axis=1)).mean() > 0.8


def test_projections_are_bytes_and_the_rest_is_what_it_was(int8: Path) -> None:
    old, new = Checkpoint(TINY), Checkpoint(int8)
    for name in old.names():
        kept = any(part in name for part in ("norm", "kv_b", "gate.", "embed", "head", "layers.4.", "eh_proj"))
        assert new.dtype(name) == ("F32" if kept else "I8"), name
    for name in ("model.embed_tokens.weight", "lm_head.weight", "model.layers.4.eh_proj.weight"):
        np.testing.assert_array_equal(new.read(name), old.read(name))


def test_its_experts_take_a_quarter_of_the_memory(int8: Path) -> None:
    def size(directory: Path) -> int:
        layers = ExpertWeights(Weights.open(directory)).layers.values()
        return sum(one.nbytes for layer in layers for one in (*layer.gate_up, *layer.down))

    assert size(int8) <= 0.4 * size(TINY), "with 48 columns to an expert, some are filled up"


def test_the_same_row_is_the_same_bit_for_bit_in_any_batch(int8: Path) -> None:
    weights = Weights.open(int8)
    model, experts = Model(weights, max_batch=8), LocalExperts(ExpertWeights(weights))
    pool, tokens = model.new_pool(16, 16), np.array([5, 90, 17, 200, 31], np.int32)

    def step(chosen: np.ndarray) -> np.ndarray:
        sequences = [SequenceKV(pool) for _ in chosen]
        result = run(model.decode(chosen, np.zeros(len(chosen), np.int32), sequences, experts), timeout=10)
        for one in sequences:
            one.free()
        return result

    together = step(tokens)
    for place in range(5):
        np.testing.assert_array_equal(step(tokens[place : place + 1])[0], together[place])


def test_experts_that_saw_too_little_are_named(tmp_path: Path) -> None:
    with pytest.raises(TooFewSamples, match=r"fewer than 4 tokens: layer 1 expert \d+ saw [0-3],"):
        quantise(TINY, tmp_path / "out", TEXT[:8])
    assert not (tmp_path / "out").exists()


def test_a_model_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(FileExistsError, match="holds a model already"):
        quantise(TINY, tmp_path, TEXT)


def test_the_command_reads_text(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(" ".join(f"{number} times {number} makes {number**2};" for number in range(2000)))
    done = CliRunner().invoke(
        app, ["quantise", str(TINY), str(tmp_path / "out"), "--calibration", str(text), "--tokens", "16384"]
    )
    assert done.exit_code == 0, done.output
    assert "layer 1: experts saw" in done.output
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["quantization_config"]["quant_method"] == "xdeepserve-int8"
    assert (tmp_path / "out/tokenizer.json").exists()
    assert Weights.open(tmp_path / "out").config.hidden_size == 64


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("too short")
    done = CliRunner().invoke(app, ["quantise", str(TINY), str(tmp_path / "out"), "--calibration", str(text)])
    assert done.exit_code == 1
    assert "Give more calibration text" in done.stderr
