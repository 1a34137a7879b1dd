"""The demo model is what its README says: it loads, talks, drafts well, and works its experts unevenly."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from .conftest import MODEL

HERE = Path(__file__).parent
LARGEST = 12_000_000  # bytes
PASSAGES = 12  # of the 48 that the README's numbers are about


@pytest.fixture(scope="module")
def report(measure: ModuleType, reader: Any) -> Any:
    return measure.report(reader, (MODEL / "held_out.txt").read_text(encoding="utf-8"), PASSAGES)


@pytest.fixture(scope="module")
def claims() -> dict[str, float]:
    """The rows of the README's table of measured numbers."""
    rows = re.findall(
        r"^\| ([^|]+) \| ([\d.]+) %? ?\|", (MODEL / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    return {name: float(number) for name, number in rows}


def test_it_is_small_enough_to_ship() -> None:
    assert sum(path.stat().st_size for path in MODEL.rglob("*")) <= LARGEST


def test_tokenizer_and_model_have_the_same_vocabulary(reader: Any) -> None:
    assert reader.tokenizer.vocab_size == reader.model.config.vocab_size


def test_the_runtime_computes_what_the_training_program_computes(reader: Any) -> None:
    with np.load(HERE / "golden.npz") as golden:
        score = reader.score(golden["tokens"])
        stride = len(score.logits) // len(golden["logits"])
        np.testing.assert_allclose(score.logits[::stride], golden["logits"], rtol=0, atol=1e-3)
        np.testing.assert_allclose(score.drafts[::stride], golden["mtp_logits"], rtol=0, atol=1e-3)


def test_greedy_text_is_the_same_in_both_forms_of_attention(measure: ModuleType, reader: Any) -> None:
    for prompt in measure.PROMPTS:
        begun = reader.tokenizer.encode(prompt)
        written = reader.write(begun, 48)
        assert len(written) == 48
        logits = reader.score(np.array([*begun, *written], np.int32)).logits[len(begun) - 1 :]
        assert logits.argmax(1).tolist() == written


def test_what_it_writes_is_made_of_words_of_the_novels(measure: ModuleType, reader: Any) -> None:
    known = set(re.findall(r"[a-z]+", (MODEL / "held_out.txt").read_text(encoding="utf-8").lower()))
    words = [
        word for prompt in measure.PROMPTS for word in re.findall(r"[a-z]+", reader.complete(prompt, 64).lower())[:-1]
    ]
    assert len(words) > 100
    assert sum(word in known for word in words) > 0.9 * len(words)


def test_a_greeting_is_answered_and_the_answer_ends(reader: Any) -> None:
    prompt = reader.tokenizer.encode(reader.chat.render([("user", "Hello!")]))
    written = reader.write(prompt, 100)
    assert 4 < len(written) < 100
    assert "Jane Austen" in reader.tokenizer.decode(written)


def test_loss_on_held_out_text_is_what_the_readme_says(report: Any, claims: dict[str, float]) -> None:
    assert report.loss == pytest.approx(claims["loss, nats a token"], abs=0.15)


def test_experts_are_as_skewed_as_the_readme_says(reader: Any, report: Any, claims: dict[str, float]) -> None:
    assert list(report.skew) == [*reader.model.config.moe_layers, reader.model.config.num_hidden_layers]
    for layer, skew in report.skew.items():
        assert skew == pytest.approx(claims[f"busiest expert over mean, layer {layer}"], rel=0.2)
    assert max(report.skew.values()) > 2


def test_drafts_are_accepted_as_often_as_the_readme_says(report: Any, claims: dict[str, float]) -> None:
    assert 100 * report.accepted_reading == pytest.approx(claims["drafts accepted, reading"], abs=4)
    assert 100 * report.accepted_writing == pytest.approx(claims["drafts accepted, writing"], abs=8)
    assert min(report.accepted_reading, report.accepted_writing) > 0.55
