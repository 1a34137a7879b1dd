"""From a request document to a job in tokens: all that can be refused without an engine is refused here.

Tokenising runs in one worker thread: the event loop goes on relaying meanwhile, and no more than one long prompt
takes memory at a time. Of a text that is far longer than the context only the head is tokenised (a megabyte would
take 200 MB): where that alone is too long, so is the whole.
"""

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from flowserve.frontend import errors
from flowserve.frontend.documents import ChatDocument, CompletionDocument, GenerationDocument
from flowserve.frontend.job import Job
from flowserve.frontend.logprobs import Vocabulary
from flowserve.text import ChatTemplate, TextError
from flowserve.wire import Sampling

COMPLETION_TOKENS = 16  # OpenAI's default for /v1/completions
SEED_BITS = 63
SAMPLING = {"temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"}
HEAD_CHARACTERS = 8  # of a text, for each token of context; real text has two to five characters a token
CUT_TOKENS = 64  # by which a text's head may have more tokens than the same characters within the whole


class Encoder(Vocabulary, Protocol):
    """What a frontend needs of a tokenizer."""

    @property
    def vocab_size(self) -> int: ...

    def encode(self, text: str) -> list[int]: ...


class Planner:
    """Makes jobs for one model. ``template`` is None for a model that cannot chat."""

    def __init__(
        self,
        model: str,
        max_context: int,
        tokenizer: Encoder,
        template: ChatTemplate | None,
        draw_seed: Callable[[], int] = lambda: secrets.randbits(SEED_BITS),
    ) -> None:
        self._model = model
        self._max_context = max_context
        self._tokenizer = tokenizer
        self._template = template
        self._draw_seed = draw_seed
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="tokenize")

    async def chat(self, request_id: str, document: ChatDocument) -> Job:
        """The job of a chat completion: without a limit, the answer may fill the context. Raises RequestError."""
        self._check(document)
        if self._template is None:
            raise errors.invalid("This model has no chat template: use /v1/completions.", param="messages")
        try:
            text = self._template.render((message.role, message.text) for message in document.messages)
        except TextError as error:
            raise errors.invalid(str(error), param="messages") from error
        prompt = await self._encode(text, "messages")
        limit = document.max_completion_tokens or document.max_tokens or max(1, self._max_context - len(prompt))
        return self._job(request_id, document, prompt, limit, "messages")

    async def completion(self, request_id: str, document: CompletionDocument) -> Job:
        """The job of a plain completion. Raises RequestError."""
        self._check(document)
        prompt = await self._prompt(document)
        return self._job(request_id, document, prompt, document.max_tokens or COMPLETION_TOKENS, "prompt")

    def _check(self, document: GenerationDocument) -> None:
        if document.model != self._model:
            raise errors.unknown_model(document.model, self._model)
        document.refuse_unsupported()

    async def _prompt(self, document: CompletionDocument) -> list[int]:
        prompt = document.prompt
        if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
            if len(prompt) > 1:
                raise errors.unsupported("prompt", "Only one prompt a request is supported: send several requests.")
            prompt = prompt[0]
        if isinstance(prompt, str):
            return await self._encode(prompt, "prompt") if prompt else []
        tokens = [token for token in prompt if isinstance(token, int)]
        vocabulary = self._tokenizer.vocab_size
        if not all(0 <= token < vocabulary for token in tokens):
            raise errors.invalid(
                f"Token ids must be between 0 and {vocabulary - 1}.", param="prompt", code="invalid_token"
            )
        return tokens

    async def _encode(self, text: str, param: str) -> list[int]:
        head = HEAD_CHARACTERS * self._max_context
        tokens = await self._in_worker(text[:head])
        if len(text) <= head:
            return tokens
        if len(tokens) > self._max_context + CUT_TOKENS:
            raise errors.context_too_long(self._max_context, len(tokens), 1, param=param)
        return await self._in_worker(text)

    async def _in_worker(self, text: str) -> list[int]:
        return await asyncio.get_running_loop().run_in_executor(self._worker, self._tokenizer.encode, text)

    def _job(self, request_id: str, document: GenerationDocument, prompt: list[int], limit: int, param: str) -> Job:
        if not prompt:
            raise errors.invalid("The prompt is empty.", param=param, code="empty_prompt")
        if len(prompt) + limit > self._max_context:
            raise errors.context_too_long(self._max_context, len(prompt), limit, param=param)
        stop = (document.stop,) if isinstance(document.stop, str) else tuple(document.stop or ())
        return Job(
            request_id=request_id,
            prompt=tuple(prompt),
            max_tokens=limit,
            sampling=self._sampling(document),
            stop=stop,
            stop_token_ids=tuple(document.stop_token_ids or ()),
            ignore_eos=bool(document.ignore_eos),
            logprobs=document.best_logprobs,
            answers=document.n or 1,
        )

    def _sampling(self, document: GenerationDocument) -> Sampling:
        seed = self._draw_seed() if document.seed is None else document.seed
        given = document.model_dump(include=SAMPLING, exclude_none=True)
        return Sampling(
            **given,
            top_k=max(document.top_k or 0, 0),
            seed=seed % (1 << SEED_BITS),  # any integer is a seed to OpenAI
        )
