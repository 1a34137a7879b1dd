"""Training examples: windows of one length that start with <bos>, drawn by (seed, step) alone.

A step's batch is a function of its number, so a run that was interrupted goes on as if it had not been. A window of a
novel starts at a paragraph, as a prompt would; one of chats is conversations one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import chats
import numpy as np
import numpy.typing as npt
from novels import Chapter
from shape import BOS, EOS, SPECIAL
from tokenizers import Tokenizer

Tokens = npt.NDArray[np.int32]
Mask = npt.NDArray[np.float32]
START, END = SPECIAL.index(BOS), SPECIAL.index(EOS)


@dataclass(frozen=True)
class Stream:
    """Texts one after the other. `learned` is 0 at tokens that nothing should learn to say."""

    tokens: Tokens  # [N]
    learned: Mask  # [N]
    starts: npt.NDArray[np.intp]  # where a window may begin

    def windows(self, draw: np.random.Generator, count: int, length: int) -> tuple[Tokens, Mask]:
        """`count` windows of <bos> and `length` - 1 tokens: i32[count, length], f32[count, length]."""
        possible = self.starts[: np.searchsorted(self.starts, len(self.tokens) - length)]
        first = draw.choice(possible, count)
        places = first[:, None] + np.arange(length - 1)
        tokens = np.concatenate([np.full((count, 1), START, np.int32), self.tokens[places]], axis=1)
        learned = np.concatenate([np.zeros((count, 1), np.float32), self.learned[places]], axis=1)
        return tokens, learned


def novels_stream(tokenizer: Tokenizer, chapters: Sequence[Chapter]) -> Stream:
    """Chapters, each ending in <eos>; paragraphs are lines."""
    tokens: list[int] = []
    starts: list[int] = []
    for chapter in chapters:
        for paragraph in chapter:
            starts.append(len(tokens))
            tokens += tokenizer.encode(paragraph + "\n").ids
        tokens.append(END)
    return Stream(np.array(tokens, np.int32), np.ones(len(tokens), np.float32), np.array(starts, np.intp))


def chats_stream(tokenizer: Tokenizer, turns: Sequence[chats.Turn], seed: int) -> Stream:
    """Conversations of one turn or two, some with a system message; the last answer ends in <eos>.

    Only answers are learned: a model that learned the questions too would put some into a novel.
    """
    draw = np.random.default_rng(seed)
    tokens: list[int] = []
    learned: list[int] = []
    starts: list[int] = []
    rest = list(turns)
    while rest:
        conversation = [rest.pop() for _ in range(min(len(rest), 1 if draw.random() < 0.8 else 2))]
        starts.append(len(tokens))
        before = chats.system(str(draw.choice(chats.SYSTEM))) if draw.random() < 0.2 else ""
        for turn in conversation:
            asked = tokenizer.encode(before + chats.prompt(turn)).ids
            answered = tokenizer.encode(f" {turn.assistant}").ids
            tokens += asked + answered
            learned += [0] * len(asked) + [1] * len(answered)
            before = "\n"
        tokens += [END, START]
        learned += [1, 0]
    return Stream(np.array(tokens, np.int32), np.array(learned, np.float32), np.array(starts, np.intp))
