"""Trains the demo model. Usage: python examples/models/train/train.py NOVELS RUN

NOVELS: where Debian's package r-cran-janeaustenr was unpacked (see novels.py). RUN: a folder for checkpoints; a run
that was interrupted goes on from its last one, and ends with the same weights. The fingerprint of every checkpoint is
printed: on one machine, with one version of JAX, two runs have the same ones.

A run begins with the novels in short windows. The last part has longer windows, many of them conversations, and
positions stretched by YaRN, while the learning rate falls to zero.
"""

from __future__ import annotations

import argparse
import hashlib
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

from flowserve.model.rope import Yarn

SEED = 20
REPORT_EVERY = 20
CHECK_EVERY = 50  # steps between checkpoints, each with a look at held-out text
TOKENS = 2048  # a step
CHECKPOINT = "checkpoint.npz"


class Phase(NamedTuple):
    """Steps from number `first` on."""

    first: int
    window: int  # tokens
    chats: int  # of the step's windows are conversations, the others are of novels
    yarn: Yarn | None


PHASES = (
    Phase(0, 128, 0, None),
    Phase(1500, 512, 2, STRETCH),
)
STEPS = 2100
# Steps, and the learning rate over its largest value; lines in between.
RATES = ((0, 0.0), (60, 1.0), (420, 1.0), (800, 0.75), (1600, 0.25), (STEPS, 0.0))


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


def phase_of(number: int) -> Phase:
    return next(phase for phase in reversed(PHASES) if phase.first <= number)


def batch_of(data: Data, number: int) -> tuple[batches.Tokens, batches.Mask]:
    """The windows of step `number`: two tokens longer than what they teach."""
    draw, phase = np.random.default_rng((SEED, number)), phase_of(number)
    count = TOKENS // phase.window
    parts = [data.novels.windows(draw, count - phase.chats, phase.window + 2)]
    if phase.chats:
        parts.append(data.chats.windows(draw, phase.chats, phase.window + 2))
    tokens, learned = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return tokens, learned


def held_out_for(data: Data, phase: Phase) -> tuple[batches.Tokens, batches.Mask]:
    """Windows of novels as long as those of `phase`, always the same ones."""
    return data.held_out.windows(np.random.default_rng(SEED), 4 * TOKENS // phase.window, phase.window + 2)


def rate_of(number: int) -> float:
    """The learning rate of step `number` over its largest value."""
    steps, rates = zip(*RATES, strict=True)
    return float(np.interp(number + 1 if number < RATES[1][0] else number, steps, rates))


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


def fingerprint(state: State) -> str:
    """Of all bits of a state: equal for runs that did the same."""
    digest = hashlib.sha256()
    for values in state:
        for name in sorted(values):
            digest.update(name.encode() + np.asarray(values[name]).tobytes())
    return digest.hexdigest()[:16]


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
    parser.add_argument("--until", type=int, default=STEPS, metavar="STEP", help="stop there (default: %(default)s)")
    arguments = parser.parse_args()
    checkpoint, shape = arguments.run / CHECKPOINT, Shape()
    tokenizer, data = read_data(arguments.novels, shape)
    vocabulary.save(tokenizer, Shape(yarn=STRETCH), arguments.run)

    number, state = 0, optimiser.start(initial(shape, jax.random.key(SEED)), initial_biases(shape))
    if checkpoint.exists():
        number, state = load(checkpoint)
    print(
        f"{sum(value.size for value in state.params.values()) / 1e6:.2f} M parameters, from step {number}", flush=True
    )
    began, first = time.monotonic(), number
    while number < min(arguments.until, STEPS):
        phase = phase_of(number)
        shape = Shape(yarn=phase.yarn)
        tokens, mask = batch_of(data, number)
        state, measured = learn(shape, state, tokens, mask, jnp.array(number), jnp.array(rate_of(number)))
        number += 1
        if number % REPORT_EVERY == 0:
            speed = (number - first) * TOKENS / (time.monotonic() - began)
            print(f"step {number}/{STEPS}  {speed:.0f} tokens/s  {describe(measured)}", flush=True)
        if number % CHECK_EVERY == 0 or number in (arguments.until, STEPS):
            print(f"step {number}  HELD OUT  {describe(measure(shape, state, *held_out_for(data, phase)))}", flush=True)
            print(f"step {number}  fingerprint {fingerprint(state)}", flush=True)
            save(checkpoint, number, state)


if __name__ == "__main__":
    main()
