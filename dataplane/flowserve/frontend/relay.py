"""From the bytes of a /v1/generate stream to checked TokenEvents. Pure.

Invariant: the events handed out have contiguous token indexes from 0, and nothing follows the last one. A stream that
repeats, skips or reorders a token is refused with ``StreamCorrupted``: it is never passed on. How the bytes were cut
into chunks does not matter.
"""

from collections.abc import Iterator

from pydantic import ValidationError

from flowserve.wire import TokenEvent

MAX_LINE_BYTES = 1 << 20


class StreamCorrupted(Exception):
    """The engine broke the stream's contract: a defect, not an outage."""


class LineSplitter:
    """Cuts a byte stream into lines. A line may not exceed ``limit`` bytes."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that ``chunk`` completes, without their newline; raises StreamCorrupted if one is too long."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if any(len(line) > self._limit for line in (*lines, self._rest)):
            raise StreamCorrupted(f"a line of the stream is longer than {self._limit} bytes")
        return lines


class TokenRelay:
    """The state of one answer's stream."""

    def __init__(self) -> None:
        self._lines = LineSplitter()
        self._next_index = 0
        self.finished = False  # the last event was seen

    def feed(self, chunk: bytes) -> Iterator[TokenEvent]:
        """The events that ``chunk`` completes, in order; raises StreamCorrupted at the first wrong one."""
        for line in self._lines.feed(chunk):
            yield self._accept(line)

    def _accept(self, line: bytes) -> TokenEvent:
        try:
            event = TokenEvent.model_validate_json(line)
        except ValidationError as error:
            raise StreamCorrupted(f"a line of the stream is no TokenEvent: {error.error_count()} errors") from None
        if self.finished:
            raise StreamCorrupted("an event came after the last one")
        if event.error is None and event.index != self._next_index:
            raise StreamCorrupted(f"expected token {self._next_index}, got token {event.index}")
        if event.logprobs and len(event.logprobs) != len(event.tokens):
            raise StreamCorrupted(f"{len(event.tokens)} tokens came with logprobs of {len(event.logprobs)}")
        self._next_index += len(event.tokens)
        self.finished = event.error is not None or event.finish_reason is not None
        return event
