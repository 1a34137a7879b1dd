"""The relay: chunking does not matter, order does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowserve.frontend.relay import LineSplitter, StreamCorrupted, TokenRelay
from flowserve.wire import TokenEvent


@st.composite
def chopped_streams(draw: st.DrawFn) -> tuple[list[TokenEvent], list[bytes]]:
    """Events of a right answer, and their bytes cut at arbitrary places."""
    groups = draw(st.lists(st.lists(st.integers(0, 2**31), max_size=4), max_size=8))
    texts = draw(st.lists(st.text(max_size=6), min_size=len(groups), max_size=len(groups)))
    events, index = [], 0
    for tokens, text in zip(groups, texts, strict=True):
        events.append(TokenEvent(index=index, tokens=tuple(tokens), text=text))
        index += len(tokens)
    events.append(TokenEvent(index=index, finish_reason="length"))
    stream = b"".join(event.model_dump_json().encode() + b"\n" for event in events)
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    return events, [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


@given(chopped_streams())
def test_any_chunking_gives_the_same_events(case):
    events, chunks = case
    relay = TokenRelay()
    assert [event for chunk in chunks for event in relay.feed(chunk)] == events
    assert relay.finished


@given(chopped_streams(), st.data())
def test_a_lost_repeated_or_swapped_event_with_tokens_is_noticed(case, data):
    events, _ = case
    carriers = [i for i, event in enumerate(events) if event.tokens]
    if not carriers:
        return
    at = data.draw(st.sampled_from(carriers))
    damage = data.draw(st.sampled_from(["lose", "repeat", "move to the end"]))
    tail = {"lose": [], "repeat": [events[at]] * 2, "move to the end": []}[damage]
    damaged = [*events[:at], *tail, *events[at + 1 :], *([events[at]] if damage == "move to the end" else [])]
    relay = TokenRelay()
    with pytest.raises(StreamCorrupted):
        list(relay.feed(b"".join(event.model_dump_json().encode() + b"\n" for event in damaged)))


def test_an_error_event_ends_the_stream():
    relay = TokenRelay()
    (event,) = relay.feed(b'{"index": 7, "error": "a peer was lost", "retryable": true}\n')
    assert event.retryable
    assert relay.finished


def test_a_line_without_end_is_refused():
    splitter = LineSplitter(limit=10)
    assert splitter.feed(b"0123456789") == []
    with pytest.raises(StreamCorrupted):
        splitter.feed(b"0")
