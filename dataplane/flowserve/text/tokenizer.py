"""The tokenizer of a checkpoint: tokenizer.json of the Hugging Face layout, with a byte-level decoder.

Text is data: a special token spelled out in it (`<eos>` in a user's message) is encoded as the characters it is made
of. Special tokens come from here (`bos`) or from the model alone.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from flowserve.text import byte_level
from flowserve.text.errors import TextError
from flowserve.text.settings import FILE, read_settings


class Tokenizer:
    """Text to tokens and back."""

    def __init__(self, directory: Path) -> None:
        """Raises TextError if tokenizer.json or tokenizer_config.json is missing, damaged or of another kind."""
        import tokenizers  # here: a prefill engine makes no text, and does without the library's megabytes

        path = directory / "tokenizer.json"
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing more precise
            raise TextError(f"{path}: cannot be read: {error}") from error
        if not isinstance(self._tokenizer.decoder, tokenizers.decoders.ByteLevel):
            raise TextError(f"{path}: decoder must be ByteLevel")
        self._tokenizer.encode_special_tokens = True
        self._bos = self._find_bos(directory)
        self._bytes: dict[int, bytes] = {}

    @property
    def vocab_size(self) -> int:
        """How many tokens there are, special ones included."""
        return self._tokenizer.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """The tokens of `text`, after the beginning of sequence if the model wants one."""
        tokens: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return tokens if self._bos is None else [self._bos, *tokens]

    def decode(self, tokens: list[int]) -> str:
        """The text of `tokens`, special ones left out; bytes that are no UTF-8 become U+FFFD."""
        return self._tokenizer.decode(tokens, skip_special_tokens=True)

    def token_bytes(self, token: int) -> bytes:
        """What `token` adds to the text: nothing if it is special or unknown."""
        cached = self._bytes.get(token)
        if cached is None:
            spelling = None if token in self._special else self._tokenizer.id_to_token(token)
            cached = self._bytes[token] = b"" if spelling is None else byte_level.to_bytes(spelling)
        return cached

    def label(self, token: int) -> str:
        """What a reader is shown of one token by itself: its text, or `bytes:\\xNN` for a part of a character.

        A special token is shown as it is spelled, an unknown one as nothing.
        """
        if token in self._special:
            return self._tokenizer.id_to_token(token) or ""
        raw = self.token_bytes(token)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)

    @cached_property
    def _special(self) -> frozenset[int]:
        added = self._tokenizer.get_added_tokens_decoder()
        return frozenset(number for number, token in added.items() if token.special)

    def _find_bos(self, directory: Path) -> int | None:
        settings = read_settings(directory)
        if not settings.get("add_bos_token", False):
            return None
        bos = settings.get("bos_token")
        spelling = bos.get("content") if isinstance(bos, dict) else bos
        number = self._tokenizer.token_to_id(spelling) if isinstance(spelling, str) else None
        if number is None:
            raise TextError(f"{directory / FILE}: bos_token {bos!r} is no token of tokenizer.json")
        return number
