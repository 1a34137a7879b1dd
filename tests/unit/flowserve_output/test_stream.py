"""From tokens to the lines of a stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowserve.output.link import Failed, Tokens
from flowserve.output.stream import Answer
from flowserve.text import Tokenizer
from flowserve.wire import FinishReason, Logprobs

MODEL = Path(__file__).parents[3] / "examples/models/tiny-deepseek-v3"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(MODEL)


def tokens(index: int, *numbers: int, finish: FinishReason | None = None) -> Tokens:
    return Tokens(key=1, index=index, tokens=numbers, finish_reason=finish)


def test_half_a_character_waits_for_its_other_half(tokenizer: Tokenizer) -> None:
    pieces = [piece for piece in tokenizer.encode("é") if tokenizer.token_bytes(piece)]
    answer = Answer(tokenizer, ())
    events = [answer.event(tokens(index, piece)) for index, piece in enumerate(pieces)]
    assert [event.tokens for event in events] == [(piece,) for piece in pieces]
    assert "".join(event.text for event in events) == "é"


def test_a_character_that_stays_unfinished_is_marked_at_the_end(tokenizer: Tokenizer) -> None:
    first = next(piece for piece in tokenizer.encode("é") if tokenizer.token_bytes(piece))
    event = Answer(tokenizer, ()).event(tokens(0, first, finish="length"))
    assert (event.text, event.finish_reason) == ("\ufffd", "length")


def test_nothing_of_a_stop_string_is_shown_and_it_ends_the_answer(tokenizer: Tokenizer) -> None:
    numbers = tokenizer.encode("one two three")
    answer = Answer(tokenizer, ("two",))
    text = ""
    for index, number in enumerate(numbers):
        event = answer.event(tokens(index, number))
        text += event.text
        if event.finish_reason:
            break
    assert (text, event.finish_reason) == ("one ", "stop")


def test_tokens_behind_a_stop_string_do_not_count(tokenizer: Tokenizer) -> None:
    numbers = tokenizer.encode("one two three")
    logprobs = tuple(Logprobs(chosen=-float(index)) for index in range(len(numbers)))
    whole = Tokens(key=1, index=0, tokens=tuple(numbers), logprobs=logprobs)
    event = Answer(tokenizer, ("two",)).event(whole)
    assert (event.text, event.finish_reason) == ("one ", "stop")
    assert tokenizer.decode(list(event.tokens)).startswith("one two")
    assert len(event.tokens) < len(numbers)
    assert event.logprobs == logprobs[: len(event.tokens)]


def test_text_held_back_for_a_stop_string_comes_out_at_the_end(tokenizer: Tokenizer) -> None:
    answer = Answer(tokenizer, ("two words",))
    numbers = tokenizer.encode("one two")
    events = [answer.event(tokens(index, number)) for index, number in enumerate(numbers[:-1])]
    last = answer.event(tokens(len(numbers) - 1, numbers[-1], finish="length"))
    assert "".join(event.text for event in [*events, last]) == "one two"


def test_an_engine_s_error_is_the_last_line(tokenizer: Tokenizer) -> None:
    event = Answer(tokenizer, ()).event(Failed(key=1, error="gone", retryable=True))
    assert (event.error, event.retryable) == ("gone", True)
