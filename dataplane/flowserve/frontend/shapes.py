"""OpenAI's reply documents for chat and plain completions, whole and in chunks. Pure.

With ``return_token_ids`` (vLLM's extension) each choice has ``token_ids``, and the reply, or a choice's first chunk,
has ``prompt_token_ids``: at the top in a chat reply, in the choice of a plain completion.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from flowserve.frontend import logprobs
from flowserve.frontend.job import Job, Piece
from flowserve.frontend.logprobs import Vocabulary
from flowserve.wire import Logprobs, TokenEvent

Json = dict[str, Any]


class Shape(ABC):
    """One reply being built; it counts the tokens that pass through for ``usage``."""

    prefix: ClassVar[str]
    whole_kind: ClassVar[str]
    chunk_kind: ClassVar[str]

    def __init__(self, job: Job, model: str, created: int, vocabulary: Vocabulary, *, return_token_ids: bool) -> None:
        """``created``: seconds since 1970."""
        self._job = job
        self._id = f"{self.prefix}-{job.request_id}"
        self._model = model
        self._created = created
        self._vocabulary = vocabulary
        self._return_token_ids = return_token_ids
        self._tokens_seen = [0] * job.answers
        self._characters_seen = [0] * job.answers
        self._cached_tokens = [0] * job.answers

    @abstractmethod
    def opening(self, answer: int) -> list[Json]:
        """Chunks that precede an answer's first token."""

    @abstractmethod
    def _choice(self, text: str) -> Json:
        """What a chunk's choice holds of the text."""

    @abstractmethod
    def _whole_choice(self, text: str) -> Json:
        """What the whole reply's choice holds of the text."""

    @abstractmethod
    def _logprobs(self, answer: int, tokens: Sequence[int], found: Sequence[Logprobs]) -> Json:
        """What a choice's ``logprobs`` holds of tokens that follow those seen."""

    @abstractmethod
    def _with_prompt(self, document: Json) -> Json:
        """The document with ``prompt_token_ids`` in the place where this kind of reply has it."""

    def chunks(self, piece: Piece) -> list[Json]:
        """The chunks for one event of an answer: none if it shows the client nothing."""
        answer, event = piece.answer, piece.event
        self._cached_tokens[answer] = piece.cached_tokens
        first = self._tokens_seen[answer] == 0
        opening = self.opening(answer) if first else []
        ids_shown = event.tokens and (self._return_token_ids or event.logprobs)
        choice = self._described(answer, self._choice(event.text), [event])
        if not (event.text or event.finish_reason or ids_shown):
            return opening
        documents = [*opening, self._document(self.chunk_kind, [choice])]
        if first and self._return_token_ids:
            documents[0] = self._with_prompt(documents[0])
        return documents

    def whole(self, pieces: Iterable[Piece]) -> Json:
        """The reply to a client that does not stream."""
        events: list[list[TokenEvent]] = [[] for _ in range(self._job.answers)]
        for piece in pieces:
            events[piece.answer].append(piece.event)
            self._cached_tokens[piece.answer] = piece.cached_tokens
        choices = [
            self._described(answer, self._whole_choice("".join(event.text for event in each)), each)
            for answer, each in enumerate(events)
        ]
        document = {**self._document(self.whole_kind, choices), "usage": self.usage()}
        return self._with_prompt(document) if self._return_token_ids else document

    def usage_chunk(self) -> Json:
        """The last chunk of a stream with ``include_usage``."""
        return {**self._document(self.chunk_kind, []), "usage": self.usage()}

    def usage(self) -> Json:
        """Tokens so far, of all answers; the prompt counts once, as the answer that found least of it cached."""
        prompt, answers = len(self._job.prompt), sum(self._tokens_seen)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": answers,
            "total_tokens": prompt + answers,
            "prompt_tokens_details": {"cached_tokens": min(self._cached_tokens)},
        }

    def _document(self, kind: str, choices: list[Json]) -> Json:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "choices": choices,
        }

    def _described(self, answer: int, choice: Json, events: Sequence[TokenEvent]) -> Json:
        """A choice with everything beside its text, of events that follow those seen."""
        tokens = [token for event in events for token in event.tokens]
        found = [each for event in events for each in event.logprobs]
        choice = {
            "index": answer,
            **choice,
            "logprobs": self._logprobs(answer, tokens, found) if found else None,
            "finish_reason": events[-1].finish_reason if events else None,
        }
        if self._return_token_ids:
            choice["token_ids"] = tokens
        self._tokens_seen[answer] += len(tokens)
        if found:
            self._characters_seen[answer] += logprobs.characters(self._vocabulary, tokens)
        return choice


class ChatShape(Shape):
    """Replies of /v1/chat/completions."""

    prefix = "chatcmpl"
    whole_kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def opening(self, answer: int) -> list[Json]:
        choice = self._described(answer, {"delta": {"role": "assistant", "content": ""}}, [])
        return [self._document(self.chunk_kind, [choice])]

    def _choice(self, text: str) -> Json:
        return {"delta": {"content": text} if text else {}}

    def _whole_choice(self, text: str) -> Json:
        return {"message": {"role": "assistant", "content": text}}

    def _logprobs(self, _answer: int, tokens: Sequence[int], found: Sequence[Logprobs]) -> Json:
        return logprobs.chat(self._vocabulary, tokens, found)

    def _with_prompt(self, document: Json) -> Json:
        return {**document, "prompt_token_ids": list(self._job.prompt)}


class CompletionShape(Shape):
    """Replies of /v1/completions."""

    prefix = "cmpl"
    whole_kind = "text_completion"
    chunk_kind = "text_completion"

    def opening(self, _answer: int) -> list[Json]:
        return []

    def _choice(self, text: str) -> Json:
        return {"text": text}

    def _whole_choice(self, text: str) -> Json:
        return {"text": text}

    def _logprobs(self, answer: int, tokens: Sequence[int], found: Sequence[Logprobs]) -> Json:
        return logprobs.completion(self._vocabulary, tokens, found, self._characters_seen[answer])

    def _with_prompt(self, document: Json) -> Json:
        prompt = list(self._job.prompt)
        return {**document, "choices": [{**choice, "prompt_token_ids": prompt} for choice in document["choices"]]}
