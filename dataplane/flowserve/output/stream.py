"""One answer on its way out: tokens in, ``TokenEvent`` out, with the text that they complete.

Invariants: indexes are contiguous; text is never taken back; nothing of a stop string or after it is shown, and the
token that completes one is the last; the last event has a finish_reason or an error, and nothing follows it.
"""

from __future__ import annotations

from flowserve.output.link import Failed, Tokens
from flowserve.text import IncrementalDetokenizer, StopMatcher, Tokenizer
from flowserve.wire import TokenEvent


class Answer:
    """The text of one request. A stop string ends it before the engine would."""

    def __init__(self, tokenizer: Tokenizer, stops: tuple[str, ...]) -> None:
        self._detokenizer = IncrementalDetokenizer(tokenizer)
        self._matcher = StopMatcher(stops)

    def event(self, message: Tokens | Failed) -> TokenEvent:
        """The line that a message of the engine becomes."""
        if isinstance(message, Failed):
            return TokenEvent(index=0, error=message.error[:1024], retryable=message.retryable)
        text, count, reason = "", 0, message.finish_reason
        while count < len(message.tokens) and not self._matcher.stopped:
            text += self._matcher.push(self._detokenizer.push(message.tokens[count]))
            count += 1
        if self._matcher.stopped:
            reason = "stop"
        elif reason is not None:
            text += self._matcher.push(self._detokenizer.finish()) + self._matcher.finish()
        return TokenEvent(
            index=message.index,
            tokens=message.tokens[:count],
            logprobs=message.logprobs[:count],
            text=text,
            finish_reason=reason,
        )
