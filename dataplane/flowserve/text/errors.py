"""What goes wrong between text and tokens."""

from __future__ import annotations


class TextError(Exception):
    """A tokenizer or a chat template that cannot be used, or a message that the template has no place for."""
