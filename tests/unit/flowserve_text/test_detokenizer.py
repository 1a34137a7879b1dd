"""A stream of text is the whole text in pieces, cut between characters."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from flowserve.text import IncrementalDetokenizer, Tokenizer

TOKENIZER = Tokenizer(Path(__file__).parents[3] / "examples/models/tiny-deepseek-v3")

TRICKY = [byte + 3 for byte in (0x41, 0x80, 0xA0, 0xC3, 0xE2, 0xED, 0xF0, 0xF4, 0xFF)]  # beginnings and middles


def stream(tokens: list[int]) -> list[str]:
    detokenizer = IncrementalDetokenizer(TOKENIZER)
    return [*(detokenizer.push(token) for token in tokens), detokenizer.finish()]


@given(st.lists(st.integers(0, 319)))
def test_the_pieces_of_any_tokens_are_the_text_of_all(tokens: list[int]) -> None:
    """Against the tokenizer library's own decoder, an independent implementation; random bytes are rarely UTF-8."""
    assert "".join(stream(tokens)) == TOKENIZER.decode(tokens)


@given(st.lists(st.sampled_from([0, 1, *TRICKY])))
def test_the_pieces_of_bytes_that_look_like_utf8_are_the_text_of_all(tokens: list[int]) -> None:
    assert "".join(stream(tokens)) == TOKENIZER.decode(tokens)


@given(st.text())
def test_a_character_appears_whole_with_its_last_byte(text: str) -> None:
    detokenizer = IncrementalDetokenizer(TOKENIZER)
    for character in text:
        *first, last = (byte + 3 for byte in character.encode())
        assert [detokenizer.push(token) for token in first] == [""] * len(first)
        assert detokenizer.push(last) == character
    assert detokenizer.finish() == ""


def test_an_unfinished_character_is_replaced_at_the_end() -> None:
    assert stream([byte + 3 for byte in b"a\xe2\x82"]) == ["a", "", "", "\ufffd"]


def test_special_tokens_say_nothing() -> None:
    assert stream([0, ord("a") + 3, 2, 1]) == ["", "a", "", "", ""]
