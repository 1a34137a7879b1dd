"""One request on an engine, from its submission until its last token.

``tokens`` is the prompt followed by the answer; ``computed`` says for how many of them the KV is committed. Both only
change when an iteration is committed, so the KV beyond ``computed`` is what an iteration in flight wrote, and undoing
it is ``rollback``. On a decode engine the last token has been chosen, and not yet run: ``computed == len(tokens) - 1``.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from enum import Enum, auto

from flowserve.cache import SequenceKV
from flowserve.model import FloatArray, log_probabilities, sample
from flowserve.wire import FinishReason, GenerateRequest, Logprobs


class Stage(Enum):
    """Where a sequence is; it never goes back."""

    WAITING = auto()  # holds no blocks
    FETCHING = auto()  # has its blocks; its KV is on the way
    RUNNING = auto()  # takes part in iterations


@dataclass(frozen=True)
class Chosen:
    """A token of an answer, and its logarithms of probabilities if the request asks for them."""

    token: int
    logprobs: Logprobs | None = None


TokenRun = SequenceOf[Chosen]


@dataclass(eq=False)
class Sequence:
    """``key`` names its stream at the output process; ``room`` is how many positions it will need at most."""

    key: int
    request: GenerateRequest
    kv: SequenceKV
    room: int
    tokens: list[int] = field(init=False)
    logprobs: list[Logprobs] = field(default_factory=list)  # of the answer, if the request asks for them
    computed: int = 0
    drafts: tuple[int, ...] = ()  # guesses at what follows the last token, never more than a hint
    delivered: int = 0  # tokens of the answer that were sent
    cached: int = 0  # of those computed, how many a prefix cache had
    stage: Stage = Stage.WAITING
    cancelled: bool = False

    def __post_init__(self) -> None:
        self.tokens = list(self.request.prompt)

    @property
    def answered(self) -> int:
        """How many tokens of the answer there are."""
        return len(self.tokens) - len(self.request.prompt)

    def choose(self, logits: FloatArray, after: TokenRun = ()) -> Chosen:
        """The token that follows those that there are and then those of ``after``, from the logits f32[V] for it."""
        tokens = [*self.tokens, *(each.token for each in after)] if after else self.tokens
        token = sample(logits, self.request.sampling, len(tokens), tokens, len(self.request.prompt))
        if self.request.logprobs is None:
            return Chosen(token)
        found = log_probabilities(logits, token, self.request.logprobs)
        return Chosen(token, Logprobs(chosen=found.chosen, best=found.best))

    def add(self, chosen: Chosen) -> None:
        """The answer goes on with a token."""
        self.tokens.append(chosen.token)
        if chosen.logprobs is not None:
            self.logprobs.append(chosen.logprobs)

    def finish_reason(self, ends: frozenset[int], after: TokenRun = ()) -> FinishReason | None:
        """Why the answer ends at the last of its tokens and those of ``after``, if it does.

        ``ends`` are the model's end-of-sequence tokens.
        """
        last = after[-1].token if after else self.tokens[-1]
        if last in self.request.stop_token_ids or (last in ends and not self.request.ignore_eos):
            return "stop"
        return "length" if self.answered + len(after) >= self.request.max_tokens else None

    def rollback(self) -> None:
        """Forgets what an iteration wrote that was not committed."""
        self.kv.truncate(min(self.computed, self.kv.length))
