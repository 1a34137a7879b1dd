"""Was a stream right? Its tokens against those that a single process computes. Pure.

A stream is right if it has exactly the expected tokens. It is excusable if it ended with an error that says the
request may be sent again, and what it had sent by then is an exact prefix of the expected tokens. Everything else
(a token lost, repeated, reordered or wrong, or an error that leaves the client without a way on) breaks the promise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class StreamError:
    """Why a stream did not end well. ``code``: of the error document, or the kind of failure seen here."""

    code: str
    message: str
    retryable: bool

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


@dataclass
class StreamResult:
    """What a client saw of one answer. Times in seconds; ``gaps``: between chunks that brought tokens."""

    token_ids: list[int] = field(default_factory=list)
    prompt_token_ids: list[int] = field(default_factory=list)
    text: str = ""
    finish_reason: str | None = None
    error: StreamError | None = None
    ttft_s: float = math.nan  # not a number: no token came
    duration_s: float = 0.0
    gaps: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Verdict:
    """How many streams were right, how many may be sent again, and what was wrong with the others."""

    ok: int
    retryable: int
    violations: list[str]


def verify(results: Sequence[StreamResult], expected: Sequence[Sequence[int]]) -> Verdict:
    """Judges each stream by the tokens expected of it (one sequence a result)."""
    ok, retryable, violations = 0, 0, []
    for number, (result, tokens) in enumerate(zip(results, expected, strict=True)):
        problem = _problem(result, list(tokens))
        if problem is not None:
            violations.append(f"stream {number}: {problem}")
        elif result.error is None:
            ok += 1
        else:
            retryable += 1
    return Verdict(ok, retryable, violations)


def _problem(result: StreamResult, expected: list[int]) -> str | None:
    """What breaks the promise, or None."""
    got = result.token_ids
    if got != expected[: len(got)]:
        return _difference(got, expected)
    if result.error is not None:
        return None if result.error.retryable else f"ended with an error that cannot be retried: {result.error}"
    if len(got) < len(expected):
        return f"lost the last {len(expected) - len(got)} of {len(expected)} tokens, without an error"
    return None if result.finish_reason else "ended without a finish reason"


def _difference(got: list[int], expected: list[int]) -> str:
    """Names the first deviation of ``got``, which is no prefix of ``expected``."""
    at = next((i for i, (a, b) in enumerate(zip(got, expected, strict=False)) if a != b), len(expected))
    if at == len(expected):
        return f"went on for {len(got) - at} tokens after its end"
    rest = got[at:]
    for width in range(1, at + 1):
        again = expected[at - width :]
        if rest == again[: len(rest)]:
            return f"repeated {width} tokens at token {at}"
    for width in range(1, len(expected) - at):
        if rest == expected[at + width : at + width + len(rest)]:
            return f"lost {width} tokens at token {at}"
    if sorted(got) == sorted(expected[: len(got)]):
        return f"reordered tokens from token {at}"
    return f"wrong token {at}: {got[at]} for {expected[at]}"
