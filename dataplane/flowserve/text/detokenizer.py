"""Streaming detokenisation: tokens in, text out, never half a character, never anything taken back.

Tokens of a byte-level tokenizer are bytes. A decoder that keeps an unfinished UTF-8 sequence until it is complete, or
proven invalid, is all it takes: the pieces, with what `finish` adds, are exactly the text of all tokens together.
"""

from __future__ import annotations

import codecs

from flowserve.text.tokenizer import Tokenizer

_Utf8Decoder = codecs.getincrementaldecoder("utf-8")


class IncrementalDetokenizer:
    """The text of one growing sequence of tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = _Utf8Decoder(errors="replace")

    def push(self, token: int) -> str:
        """The characters that `token` completes, perhaps none."""
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def finish(self) -> str:
        """What is left at the end of the sequence: U+FFFD for an unfinished character, else nothing."""
        return self._decoder.decode(b"", final=True)
