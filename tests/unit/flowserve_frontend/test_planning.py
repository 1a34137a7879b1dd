"""What planning makes of texts that are far too long, and of seeds."""

import pytest

from flowserve.frontend.documents import CompletionDocument
from flowserve.frontend.errors import RequestError
from flowserve.frontend.planning import CUT_TOKENS, HEAD_CHARACTERS, Planner

CONTEXT = 32
HEAD = HEAD_CHARACTERS * CONTEXT


class Words:
    """A token for each word of a text; remembers how much it was given."""

    vocab_size = 1000

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def encode(self, text: str) -> list[int]:
        self.lengths.append(len(text))
        return [len(word) for word in text.split()]


def plan(words: Words, *, seed: int = 7) -> Planner:
    return Planner("m", CONTEXT, words, None, draw_seed=lambda: seed)


def document(prompt: str, **fields) -> CompletionDocument:
    return CompletionDocument.model_validate({"model": "m", "prompt": prompt, "max_tokens": 1, **fields})


async def test_only_the_head_of_an_endless_text_is_tokenised():
    words = Words()
    with pytest.raises(RequestError) as caught:
        await plan(words).completion("id", document("a " * 1_000_000))
    assert caught.value.code == "context_length_exceeded"
    assert words.lengths == [HEAD]


async def test_a_long_text_of_few_tokens_fits():
    words = Words()
    job = await plan(words).completion("id", document("b" * HEAD * 2 + " c"))
    assert job.prompt == (HEAD * 2, 1)


async def test_a_head_that_may_owe_its_length_to_the_cut_is_no_proof():
    words = Words()
    text = "a " * (CONTEXT + CUT_TOKENS - 1) + "b" * HEAD
    with pytest.raises(RequestError) as caught:
        await plan(words).completion("id", document(text))
    assert caught.value.code == "context_length_exceeded"
    assert words.lengths == [HEAD, len(text)]


@pytest.mark.parametrize(("asked", "used"), [(None, 7), (0, 0), (2**63, 0), (-1, 2**63 - 1)])
async def test_any_integer_is_a_seed(asked, used):
    job = await plan(Words()).completion("id", document("a", seed=asked))
    assert job.sampling.seed == used


async def test_an_answer_without_a_limit_has_openais_default():
    job = await plan(Words()).completion("id", document("a", max_tokens=None))
    assert job.max_tokens == 16
