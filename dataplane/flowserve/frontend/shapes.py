"""OpenAI's reply documents for chat and plain completions, whole and in chunks. Pure.

With ``return_token_ids`` (vLLM's extension) each choice has ``token_ids``, and the reply, or the stream's first
chunk, has ``prompt_token_ids``: at the top in a chat reply, in the choice of a plain completion.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

from flowserve.frontend.job import Job
from flowserve.wire import TokenEvent

Json = dict[str, Any]


class Shape(ABC):
    """One reply being built; it counts the tokens that pass through for ``usage``."""

    prefix: ClassVar[str]
    whole_kind: ClassVar[str]
    chunk_kind: ClassVar[str]

    def __init__(self, job: Job, model: str, created: int, *, return_token_ids: bool) -> None:
        """``created``: seconds since 1970."""
        self._job = job
        self._id = f"{self.prefix}-{job.request_id}"
        self._model = model
        self._created = created
        self._return_token_ids = return_token_ids
        self._tokens_seen = 0

    @abstractmethod
    def opening(self) -> list[Json]:
        """Chunks that precede the first token."""

    @abstractmethod
    def _choice(self, text: str) -> Json:
        """What a chunk's choice holds of the text."""

    @abstractmethod
    def _whole_choice(self, text: str) -> Json:
        """What the whole reply's choice holds of the text."""

    @abstractmethod
    def _with_prompt(self, document: Json) -> Json:
        """The document with ``prompt_token_ids`` in the place where this kind of reply has it."""

    def chunks(self, event: TokenEvent) -> list[Json]:
        """The chunks for one event: none if it shows the client nothing."""
        first = self._tokens_seen == 0
        self._tokens_seen += len(event.tokens)
        opening = self.opening() if first else []
        if not (event.text or event.finish_reason or (self._return_token_ids and event.tokens)):
            return opening
        chunk = self._document(self.chunk_kind, self._choice(event.text), event.tokens, event.finish_reason)
        documents = [*opening, chunk]
        if first and self._return_token_ids:
            documents[0] = self._with_prompt(documents[0])
        return documents

    def whole(self, events: Iterable[TokenEvent]) -> Json:
        """The reply to a client that does not stream."""
        events = list(events)
        tokens = [token for event in events for token in event.tokens]
        self._tokens_seen = len(tokens)
        text = "".join(event.text for event in events)
        reason = events[-1].finish_reason
        document = self._document(self.whole_kind, self._whole_choice(text), tokens, reason)
        document["usage"] = self.usage()
        return self._with_prompt(document) if self._return_token_ids else document

    def usage_chunk(self) -> Json:
        """The last chunk of a stream with ``include_usage``."""
        return {**self._head(self.chunk_kind), "choices": [], "usage": self.usage()}

    def usage(self) -> Json:
        """Tokens so far."""
        prompt = len(self._job.prompt)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": self._tokens_seen,
            "total_tokens": prompt + self._tokens_seen,
        }

    def _head(self, kind: str) -> Json:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}

    def _document(self, kind: str, choice: Json, tokens: Iterable[int], finish_reason: str | None) -> Json:
        choice = {"index": 0, **choice, "logprobs": None, "finish_reason": finish_reason}
        if self._return_token_ids:
            choice["token_ids"] = list(tokens)
        return {**self._head(kind), "choices": [choice]}


class ChatShape(Shape):
    """Replies of /v1/chat/completions."""

    prefix = "chatcmpl"
    whole_kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def opening(self) -> list[Json]:
        return [self._document(self.chunk_kind, {"delta": {"role": "assistant", "content": ""}}, (), None)]

    def _choice(self, text: str) -> Json:
        return {"delta": {"content": text} if text else {}}

    def _whole_choice(self, text: str) -> Json:
        return {"message": {"role": "assistant", "content": text}}

    def _with_prompt(self, document: Json) -> Json:
        return {**document, "prompt_token_ids": list(self._job.prompt)}


class CompletionShape(Shape):
    """Replies of /v1/completions."""

    prefix = "cmpl"
    whole_kind = "text_completion"
    chunk_kind = "text_completion"

    def opening(self) -> list[Json]:
        return []

    def _choice(self, text: str) -> Json:
        return {"text": text}

    def _whole_choice(self, text: str) -> Json:
        return {"text": text}

    def _with_prompt(self, document: Json) -> Json:
        choice = {**document["choices"][0], "prompt_token_ids": list(self._job.prompt)}
        return {**document, "choices": [choice]}
