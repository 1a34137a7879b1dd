"""Logprobs in the two shapes that OpenAI's API has for them. Pure.

A token is shown as its own text, as ``bytes:\\xNN…`` where it is only a part of a character, as OpenAI does.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from flowserve.wire import Logprobs

Json = dict[str, Any]


class Vocabulary(Protocol):
    """What is needed of a tokenizer to show tokens."""

    def label(self, token: int) -> str:
        """What a reader is shown of a token by itself."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """What a token adds to the text, in UTF-8."""
        ...


def chat(vocabulary: Vocabulary, tokens: Sequence[int], logprobs: Sequence[Logprobs]) -> Json:
    """``choices[].logprobs`` of a chat completion, whole or chunk."""

    def entry(token: int, value: float) -> Json:
        return {"token": vocabulary.label(token), "logprob": value, "bytes": list(vocabulary.token_bytes(token))}

    content = [
        {**entry(token, each.chosen), "top_logprobs": [entry(*best) for best in each.best]}
        for token, each in zip(tokens, logprobs, strict=True)
    ]
    return {"content": content, "refusal": None}


def completion(vocabulary: Vocabulary, tokens: Sequence[int], logprobs: Sequence[Logprobs], offset: int) -> Json:
    """``choices[].logprobs`` of a plain completion; ``offset``: characters of the answer before these tokens."""
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += characters(vocabulary, [token])
    return {
        "tokens": [vocabulary.label(token) for token in tokens],
        "token_logprobs": [each.chosen for each in logprobs],
        "top_logprobs": [{vocabulary.label(token): value for token, value in each.best} for each in logprobs],
        "text_offset": offsets,
    }


def characters(vocabulary: Vocabulary, tokens: Sequence[int]) -> int:
    """How many characters begin in these tokens."""
    return sum(byte & 0xC0 != 0x80 for token in tokens for byte in vocabulary.token_bytes(token))
