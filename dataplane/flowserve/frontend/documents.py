"""OpenAI's request documents, as far as they are honoured here, with vLLM's extensions.

Unknown fields are ignored, as OpenAI's servers do; fields that would change the answer and cannot be honoured are
refused (``UNSUPPORTED``), since ignoring them would answer another question. Types are strict and lists stop at
their first error, so that a hostile body costs no more than its own size.
"""

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from flowserve.frontend import errors
from flowserve.wire import MAX_LOGPROBS

MAX_ANSWERS = 128  # as OpenAI's

TokenId = Annotated[int, Field(ge=0)]
TokenIds = Annotated[list[int], Field(fail_fast=True)]
StopString = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class Document(BaseModel):
    """Base of all documents."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)


class StreamOptions(Document):
    """What a stream carries beside its text."""

    include_usage: bool = False


class GenerationDocument(Document):
    """What chat and plain completions have in common."""

    model_config = ConfigDict(extra="allow")  # extras are kept for the check of UNSUPPORTED only

    # Field and the values of it that ask for nothing special. Values are compared with their types: 0 is not False.
    UNSUPPORTED: ClassVar[dict[str, tuple[Any, ...]]] = {
        "logit_bias": (None, {}),
        "response_format": (None, {"type": "text"}),
    }

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)  # extension: -1 and 0 mean all
    min_p: float | None = Field(default=None, ge=0, le=1)  # extension
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    repetition_penalty: float | None = Field(default=None, gt=0, le=10)  # extension
    seed: int | None = None
    n: int | None = Field(default=None, ge=1, le=MAX_ANSWERS)
    stop: StopString | Annotated[list[StopString], Field(max_length=4)] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=64, fail_fast=True)] | None = None  # extension
    ignore_eos: bool | None = None  # extension
    return_token_ids: bool | None = None  # extension

    @property
    @abstractmethod
    def best_logprobs(self) -> int | None:
        """Of how many likeliest tokens the logprobs are wanted beside the chosen one's; None: of none."""

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return self.stream_options is not None and self.stream_options.include_usage

    def refuse_unsupported(self) -> None:
        """Raises RequestError for a parameter, or a combination of them, that cannot be honoured."""
        for name, neutral in self.UNSUPPORTED.items():
            value = (self.model_extra or {}).get(name)
            if not any(type(value) is type(each) and value == each for each in neutral):
                raise errors.unsupported(name, f"{name!r} is not supported by this server yet: leave it out.")
        if self.stream_options is not None and not self.stream:
            raise errors.invalid("'stream_options' is only allowed when 'stream' is true.", param="stream_options")


class TextPart(Document):
    """A piece of a message; other kinds than text are not understood."""

    type: Literal["text"]
    text: str


class Message(Document):
    """One turn of a conversation."""

    role: Annotated[str, StringConstraints(max_length=64)]
    content: str | Annotated[list[TextPart], Field(fail_fast=True)]

    @property
    def text(self) -> str:
        """The content, its parts joined."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatDocument(GenerationDocument):
    """Body of POST /v1/chat/completions."""

    UNSUPPORTED = {
        **GenerationDocument.UNSUPPORTED,
        "tools": (None, []),
        "functions": (None, []),
        "audio": (None,),
        "modalities": (None, ["text"]),
    }

    messages: Annotated[list[Message], Field(fail_fast=True, min_length=1)]
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)

    @property
    def best_logprobs(self) -> int | None:
        return self.top_logprobs or 0 if self.logprobs else None

    def refuse_unsupported(self) -> None:
        super().refuse_unsupported()
        if self.top_logprobs and not self.logprobs:
            raise errors.invalid("'top_logprobs' needs 'logprobs' to be true.", param="top_logprobs")


class CompletionDocument(GenerationDocument):
    """Body of POST /v1/completions."""

    UNSUPPORTED = {
        **GenerationDocument.UNSUPPORTED,
        "best_of": (None, 1),
        "echo": (None, False),
        "suffix": (None, ""),
    }

    prompt: str | TokenIds | Annotated[list[str | TokenIds], Field(fail_fast=True)]
    logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)

    @property
    def best_logprobs(self) -> int | None:
        return self.logprobs
