"""Measures a model on text it has not seen, in the runtime that serves it. Usage: python measure.py MODEL TEXT

* Loss: nats a token of the main model and of the MTP layer.
* Skew: in each layer with experts, the load of the busiest expert over the mean load.
* Acceptance: the share of MTP's first drafts that are what the main model says, on the text itself and on what the
  model writes greedily from the beginnings of its paragraphs. Speculative decoding meets the second.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from flowserve.cache import BlockPool, SequenceKV
from flowserve.model import ExpertWeights, FloatArray, IntArray, LocalExperts, Model, Steps, Weights
from flowserve.model.mtp import MtpLayer
from flowserve.model.prefill import PrefillAttention
from flowserve.text import ChatTemplate, Tokenizer
from xccl import run

BLOCK, BLOCKS = 16, 256
WINDOW, WINDOWS = 256, 48  # tokens in a passage that is read at once, and passages
PROMPT, WRITTEN = 24, 64  # tokens of a passage that the model goes on with, and tokens it writes
MINUTE = 60.0

PROMPTS = (
    "It is a truth universally acknowledged, that",
    "Emma was very much surprised",
    "\"My dear Mr. Bennet,\" said",
    "The next morning",
)  # fmt: skip
QUESTIONS = ("Hello!", "Who is Mr. Darcy?", "Tell me about the letter.", "Continue: She walked into the garden, and")


class CountedExperts:
    """Local experts that count the rows each of them gets, by layer."""

    def __init__(self, weights: ExpertWeights) -> None:
        self._experts = LocalExperts(weights)
        self.rows: dict[int, Counter[int]] = {layer: Counter() for layer in weights.layers}

    def __call__(self, layer: int, x: FloatArray, expert_ids: IntArray, weights: FloatArray) -> Steps[FloatArray]:
        self.rows[layer].update(expert_ids.reshape(-1).tolist())
        return self._experts(layer, x, expert_ids, weights)


@dataclass(frozen=True)
class Score:
    """What the model thinks of tokens i32[T]."""

    logits: FloatArray  # f32[T - 1, V], row i of token i + 1
    drafts: FloatArray  # f32[T - 1, V], row i of token i + 2


class Reader:
    """A model with its MTP layer in one process."""

    def __init__(self, directory: Path) -> None:
        weights = Weights.open(directory)
        config = weights.config
        self.experts_per_layer = config.n_routed_experts
        self.tokenizer = Tokenizer(directory)
        self.chat = ChatTemplate.load(directory)
        self.model = Model(weights, max_batch=1)
        self._mtp = MtpLayer(weights, self.model)
        self.experts = CountedExperts(ExpertWeights(weights, layers=[*config.moe_layers, self._mtp.number]))
        self._pool = BlockPool(BLOCKS, BLOCK, self._mtp.number + 1, config.latent_width)
        self._end = set(config.eos_token_ids)

    def score(self, tokens: IntArray) -> Score:
        """Reads two tokens or more at once."""
        seq, seen = SequenceKV(self._pool), len(tokens) - 1
        seq.append(seen)
        attention = PrefillAttention(seq, self.model.rotations(np.arange(seen, dtype=np.int32)))
        hidden = run(self.model.forward(self.model.embed(tokens[:-1]), attention, self.experts, seen), timeout=MINUTE)
        drafted = run(self._mtp.forward(hidden, tokens[1:], attention, self.experts, seen), timeout=MINUTE)
        seq.free()
        return Score(self.model.logits(hidden), self._mtp.logits(drafted))

    def write(self, prompt: Sequence[int], count: int) -> list[int]:
        """The tokens that follow greedily, at most `count` and none after the end of the text."""
        seq = SequenceKV(self._pool)
        logits = run(self.model.prefill(np.array(prompt, np.int32), 0, seq, self.experts), timeout=MINUTE)
        written: list[int] = []
        while len(written) < count and (token := int(logits.argmax())) not in self._end:
            written.append(token)
            position = np.array([seq.length], np.int32)
            step = self.model.decode(np.array([token], np.int32), position, [seq], self.experts)
            logits = run(step, timeout=MINUTE)[0]
        seq.free()
        return written

    def complete(self, prompt: str, count: int) -> str:
        return self.tokenizer.decode(self.write(self.tokenizer.encode(prompt), count))

    def answer(self, question: str, count: int) -> str:
        return self.complete(self.chat.render([("user", question)]), count).strip()


@dataclass(frozen=True)
class Report:
    """Means over a text; see the module's docstring."""

    tokens: int
    loss: float
    mtp_loss: float
    skew: dict[int, float]
    accepted_reading: float
    accepted_writing: float


def passages(tokenizer: Tokenizer, text: str, count: int, length: int) -> list[IntArray]:
    """`count` passages of `length` tokens with the one that begins a sequence, spread evenly over the text."""
    lines = text.splitlines(keepends=True)
    encoded = [tokenizer.encode(line)[1:] for line in lines]
    begin = tokenizer.encode("")
    starts = np.concatenate([[0], np.cumsum([len(tokens) for tokens in encoded])])
    stream = np.concatenate([np.array(tokens, np.int32) for tokens in encoded])
    possible = starts[starts <= len(stream) - length]
    chosen = possible[np.linspace(0, len(possible) - 1, count).round().astype(int)]
    return [np.concatenate([np.array(begin, np.int32), stream[start : start + length - 1]]) for start in chosen]


def report(reader: Reader, text: str, count: int = WINDOWS) -> Report:
    """Reads `count` passages, then goes on with the beginning of each."""
    read = passages(reader.tokenizer, text, count, WINDOW)
    reader.experts.rows = {layer: Counter() for layer in reader.experts.rows}
    surprises, draft_surprises, agreed = [], [], []
    for tokens in read:
        score = reader.score(tokens)
        surprises.append(surprise(score.logits, tokens[1:]))
        draft_surprises.append(surprise(score.drafts[:-1], tokens[2:]))
        agreed.append(score.drafts[:-1].argmax(1) == score.logits[1:].argmax(1))
    largest = {layer: rows.most_common(1)[0][1] / rows.total() for layer, rows in reader.experts.rows.items()}
    return Report(
        tokens=sum(len(tokens) - 1 for tokens in read),
        loss=float(np.concatenate(surprises).mean()),
        mtp_loss=float(np.concatenate(draft_surprises).mean()),
        skew={layer: share * reader.experts_per_layer for layer, share in largest.items()},
        accepted_reading=float(np.concatenate(agreed).mean()),
        accepted_writing=float(np.concatenate([_accepted(reader, tokens[:PROMPT]) for tokens in read]).mean()),
    )


def _accepted(reader: Reader, prompt: IntArray) -> npt.NDArray[np.bool_]:
    """For each token but the first that the model writes after `prompt`, whether MTP's draft was this token."""
    written = reader.write(prompt.tolist(), WRITTEN)
    if len(written) < 2:
        return np.empty(0, np.bool_)
    tokens = np.concatenate([prompt, np.array(written, np.int32)])
    drafts = reader.score(tokens).drafts[len(prompt) - 1 : -1]
    accepted: npt.NDArray[np.bool_] = drafts.argmax(1) == tokens[len(prompt) + 1 :]
    return accepted


def surprise(logits: FloatArray, tokens: IntArray) -> FloatArray:
    """-log of the probability of tokens i32[T] under logits f32[T, V]."""
    top = logits.max(axis=1)
    total = np.log(np.exp(logits - top[:, None]).sum(axis=1)) + top
    result: FloatArray = total - logits[np.arange(len(tokens)), tokens]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    arguments = parser.parse_args()
    reader = Reader(arguments.model)
    found = report(reader, arguments.text.read_text(encoding="utf-8"))
    print(
        f"{found.tokens} tokens: loss {found.loss:.3f} (perplexity {np.exp(found.loss):.1f}), MTP {found.mtp_loss:.3f}"
    )
    print("busiest expert over mean:", ", ".join(f"layer {layer} {skew:.2f}" for layer, skew in found.skew.items()))
    print(f"drafts accepted: reading {found.accepted_reading:.1%}, writing {found.accepted_writing:.1%}")
    for prompt in PROMPTS:
        print(f"\n{prompt}|{reader.complete(prompt, WRITTEN)}")
    for question in QUESTIONS:
        print(f"\n> {question}\n{reader.answer(question, WRITTEN)}")


if __name__ == "__main__":
    main()
