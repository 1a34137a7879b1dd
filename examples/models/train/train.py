"""Trains the demo model. Usage: python examples/models/train/train.py NOVELS RUN [--steps N]

NOVELS: where Debian's package r-cran-janeaustenr was unpacked (see novels.py). RUN: a folder for checkpoints; a run
that was interrupted goes on from its last one, and ends with the same weights.

The learning rate warms up, stays for a fifth of the steps, and falls in a line to zero at the last one. In the last
quarter the windows are longer, half of them are conversations, and YaRN stretches the positions.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import batches
import chats
import jax
import jax.numpy as jnp
import numpy as np
import optimiser
import vocabulary
from jax import Array
from novels import read_novels, split
from objective import Measured, objective
from optimiser import State
from parameters import initial, initial_biases
from shape import STRETCH, Shape
from tokenizers import Tokenizer

SEED = 20
WARM_UP = 60
FALLING = 0.8  # the share of the steps, at the end, in which the learning rate falls
CHATTING = 0.25  # the share in which half of the windows are conversations
REPORT_EVERY = 20
CHECK_EVERY = 100  # steps between checkpoints, each with a look at held-out text
TOKENS = 2048  # a step
CHECKPOINT = "checkpoint.npz"
SHORT, LONG = 128, 512  # tokens a window, before and during that


class Data(NamedTuple):
    """What is learned from, and what is not."""

    novels: batches.Stream
    chats: batches.Stream
    held_out: batches.Stream


def read_data(directory: Path, shape: Shape) -> tuple[Tokenizer, Data]:
    """The tokenizer learned from the training chapters, and the texts as its tokens."""
    learned, held_out = split(read_novels(directory))
    tokenizer = vocabulary.learn((paragraph for chapter in learned for paragraph in chapter), shape.vocab_size)
    data = Data(
        batches.novels_stream(tokenizer, learned),
        batches.chats_stream(tokenizer, chats.turns(learned, SEED), SEED),
        batches.novels_stream(tokenizer, held_out),
    )
    return tokenizer, data


def batch_of(data: Data, number: int, steps: int) -> tuple[batches.Tokens, batches.Mask]:
    """The windows of step `number`: two tokens longer than what they teach."""
    draw = np.random.default_rng((SEED, number))
    if not stretched(number, steps):
        return data.novels.windows(draw, TOKENS // SHORT, SHORT + 2)
    half = TOKENS // LONG // 2
    parts = [stream.windows(draw, half, LONG + 2) for stream in (data.novels, data.chats)]
    tokens, learned = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return tokens, learned


def held_out_for(data: Data, number: int, steps: int) -> tuple[batches.Tokens, batches.Mask]:
    """Windows as long as those of step `number`, always the same ones."""
    length = LONG if stretched(number, steps) else SHORT
    return data.held_out.windows(np.random.default_rng(SEED), 4 * TOKENS // length, length + 2)


def stretched(number: int, steps: int) -> bool:
    """Whether step `number` belongs to the last quarter."""
    return number >= round(steps * (1 - CHATTING))


def shape_of(number: int, steps: int) -> Shape:
    return Shape(yarn=STRETCH if stretched(number, steps) else None)


def rate_of(number: int, steps: int) -> float:
    """The learning rate of step `number` over its largest value."""
    return min(1.0, (number + 1) / WARM_UP, (steps - number) / (steps * FALLING))


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def learn(shape: Shape, state: State, tokens: Array, mask: Array, number: Array, rate: Array) -> tuple[State, Measured]:
    """One step."""
    loss = partial(objective, shape)
    gradients, measured = jax.grad(loss, has_aux=True)(state.params, state.biases, tokens, mask)
    return optimiser.step(state, gradients, measured.loads, number, rate), measured


@partial(jax.jit, static_argnums=0)
def measure(shape: Shape, state: State, tokens: Array, mask: Array) -> Measured:
    return objective(shape, state.params, state.biases, tokens, mask)[1]


def save(path: Path, number: int, state: State) -> None:
    """Replaces `path` at once, so that an interruption leaves the old or the new checkpoint."""
    arrays = {f"{part}/{name}": value for part, values in state._asdict().items() for name, value in values.items()}
    partial_path = path.with_suffix(".partial.npz")
    np.savez(partial_path, step=np.array(number), **arrays)  # type: ignore[arg-type]
    partial_path.replace(path)


def load(path: Path) -> tuple[int, State]:
    """The number of the next step, and the state before it."""
    with np.load(path) as arrays:
        parts: Mapping[str, dict[str, Array]] = {part: {} for part in State._fields}
        for key in arrays.files:
            if key != "step":
                part, name = key.split("/", 1)
                parts[part][name] = jnp.asarray(arrays[key])
        return int(arrays["step"]), State(**parts)


def describe(measured: Measured) -> str:
    skew = " ".join(f"{float(load.max() / load.mean()):.1f}" for load in measured.loads.values())
    return (
        f"loss {measured.loss:.3f}  MTP loss {measured.mtp_loss:.3f}  accepted {measured.accepted:.1%}  "
        f"busiest expert over mean, by layer: {skew}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("novels", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("--steps", type=int, default=2000)
    arguments = parser.parse_args()
    steps, checkpoint = arguments.steps, arguments.run / CHECKPOINT
    shape = shape_of(steps, steps)
    tokenizer, data = read_data(arguments.novels, shape)
    vocabulary.save(tokenizer, shape, arguments.run)

    number, state = 0, optimiser.start(initial(shape, jax.random.key(SEED)), initial_biases(shape))
    if checkpoint.exists():
        number, state = load(checkpoint)
    print(
        f"{sum(value.size for value in state.params.values()) / 1e6:.2f} M parameters, from step {number}", flush=True
    )
    began, first = time.monotonic(), number
    while number < steps:
        shape = shape_of(number, steps)
        tokens, mask = batch_of(data, number, steps)
        state, measured = learn(shape, state, tokens, mask, jnp.array(number), jnp.array(rate_of(number, steps)))
        number += 1
        if number % REPORT_EVERY == 0:
            speed = (number - first) * TOKENS / (time.monotonic() - began)
            print(f"step {number}/{steps}  {speed:.0f} tokens/s  {describe(measured)}", flush=True)
        if number % CHECK_EVERY == 0 or number == steps:
            held_out = held_out_for(data, number - 1, steps)
            print(f"step {number}  HELD OUT  {describe(measure(shape, state, *held_out))}", flush=True)
            save(checkpoint, number, state)


if __name__ == "__main__":
    main()
