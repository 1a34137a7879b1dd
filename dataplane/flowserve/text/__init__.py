"""Between text and tokens: tokenizer, chat template, streaming detokeniser and stop strings. Needs no NumPy."""

from flowserve.text.chat import ChatTemplate
from flowserve.text.detokenizer import IncrementalDetokenizer
from flowserve.text.errors import TextError
from flowserve.text.stop import StopMatcher
from flowserve.text.tokenizer import Tokenizer

__all__ = ["ChatTemplate", "IncrementalDetokenizer", "StopMatcher", "TextError", "Tokenizer"]
