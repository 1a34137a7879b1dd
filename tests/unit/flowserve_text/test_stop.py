"""Stop strings: found wherever the text is cut, and nothing of one is ever shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowserve.text import StopMatcher

texts = st.text("abc", max_size=30)
stop_lists = st.lists(st.text("abc", min_size=1, max_size=4), max_size=4)


def shown(pieces: list[str], stops: list[str]) -> tuple[str, bool]:
    matcher = StopMatcher(stops)
    text = "".join(matcher.push(piece) for piece in pieces)
    return text + matcher.finish(), matcher.stopped


@given(st.lists(st.text("abc", max_size=5)), stop_lists)
def test_text_ends_before_the_stop_string_that_is_complete_first(pieces: list[str], stops: list[str]) -> None:
    whole = "".join(pieces)
    for end in range(len(whole) + 1):
        complete = [stop for stop in stops if whole[:end].endswith(stop)]
        if complete:
            assert shown(pieces, stops) == (whole[: end - max(map(len, complete))], True)
            return
    assert shown(pieces, stops) == (whole, False)


@given(texts, stop_lists)
def test_text_is_held_back_only_while_it_may_become_a_stop_string(text: str, stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    visible = ""
    for end, character in enumerate(text, start=1):
        visible += matcher.push(character)
        if matcher.stopped:
            break
        held = text[len(visible) : end]
        assert held == "" or any(stop.startswith(held) for stop in stops)
    assert text.startswith(visible + matcher.finish())


def test_what_cannot_stop_is_shown_at_once() -> None:
    matcher = StopMatcher(["END"])
    assert [matcher.push(piece) for piece in ("a", "E", "N", "E", "ND", "z")] == ["a", "", "", "EN", "", ""]
    assert matcher.stopped
    assert matcher.finish() == ""


def test_nothing_is_held_back_without_stop_strings() -> None:
    assert StopMatcher([]).push("anything") == "anything"


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        StopMatcher(["a", ""])
