"""The example's tokenizer: reproducible, complete, and deaf to special tokens in text."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowserve.text import TextError, Tokenizer

MODELS = Path(__file__).parents[3] / "examples/models"
TINY = MODELS / "tiny-deepseek-v3"
TOKENIZER = Tokenizer(TINY)


def test_the_script_reproduces_the_files(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("make_tokenizer", MODELS / "make_tokenizer.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.main(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / name).read_bytes() == (TINY / name).read_bytes()


def test_the_vocabulary_is_the_model_s() -> None:
    config = json.loads((TINY / "config.json").read_text())
    assert TOKENIZER.vocab_size == config["vocab_size"] == 320
    assert [TOKENIZER.token_bytes(byte + 3) for byte in range(256)] == [bytes([byte]) for byte in range(256)]
    assert all(len(TOKENIZER.token_bytes(token)) > 1 for token in range(259, 320))
    assert [TOKENIZER.token_bytes(token) for token in (0, 1, 2, 320)] == [b""] * 4


@given(st.text())
def test_text_survives_a_round_trip(text: str) -> None:
    tokens = TOKENIZER.encode(text)
    assert tokens[0] == 0, "the beginning of sequence"
    assert TOKENIZER.decode(tokens) == text
    assert all(3 <= token < 320 for token in tokens[1:])


def test_a_token_by_itself_is_shown_as_its_text_its_spelling_or_its_bytes() -> None:
    assert "".join(TOKENIZER.label(token) for token in TOKENIZER.encode("one two")[1:]) == "one two"
    assert TOKENIZER.label(TOKENIZER.encode("a")[0]) == "<bos>"
    assert "bytes:\\xc3" in [TOKENIZER.label(token) for token in TOKENIZER.encode("ÿ")]
    assert TOKENIZER.label(10**6) == ""


def test_a_special_token_in_text_is_just_text() -> None:
    tokens = TOKENIZER.encode("a<eos><bos>")
    assert set(tokens[1:]).isdisjoint({0, 1, 2})
    assert TOKENIZER.decode(tokens) == "a<eos><bos>"


def test_common_words_take_few_tokens() -> None:
    assert len(TOKENIZER.encode(" the and of that")) == 5


def copy(directory: Path, **settings: object) -> Path:
    (directory / "tokenizer.json").write_bytes((TINY / "tokenizer.json").read_bytes())
    values = json.loads((TINY / "tokenizer_config.json").read_text()) | settings
    (directory / "tokenizer_config.json").write_text(json.dumps(values))
    return directory


def test_the_beginning_of_sequence_is_optional_and_may_be_an_object(tmp_path: Path) -> None:
    assert Tokenizer(copy(tmp_path, add_bos_token=False)).encode("a") == TOKENIZER.encode("a")[1:]
    assert Tokenizer(copy(tmp_path, bos_token={"content": "<bos>"})).encode("a") == TOKENIZER.encode("a")


@pytest.mark.parametrize("bos", ["<none>", None, 7])
def test_an_unknown_beginning_of_sequence_is_refused(tmp_path: Path, bos: object) -> None:
    with pytest.raises(TextError, match=r"bos_token .* is no token of tokenizer\.json"):
        Tokenizer(copy(tmp_path, bos_token=bos))


@pytest.mark.parametrize("content", [None, b"", b"{}", b"[]"])
def test_a_damaged_tokenizer_is_named(tmp_path: Path, content: bytes | None) -> None:
    copy(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(TextError, match=r"tokenizer\.json: cannot be read"):
        Tokenizer(tmp_path)


@pytest.mark.parametrize("content", [None, b"{", b"[]"])
def test_damaged_settings_are_named(tmp_path: Path, content: bytes | None) -> None:
    copy(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(TextError, match=r"tokenizer_config\.json: "):
        Tokenizer(tmp_path)


def test_another_kind_of_decoder_is_refused(tmp_path: Path) -> None:
    copy(tmp_path)
    values = json.loads((TINY / "tokenizer.json").read_text())
    values["decoder"] = {"type": "Fuse"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    with pytest.raises(TextError, match="decoder must be ByteLevel"):
        Tokenizer(tmp_path)


def test_text_needs_no_numpy() -> None:
    script = "import flowserve.text, sys; sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
