"""Makes the model folder out of a finished run. Usage: python examples/models/train/release.py NOVELS RUN MODEL TESTS

MODEL gets the checkpoint, the tokenizer and the held-out text; TESTS gets `golden.npz`, what this program computes
with the rounded weights: the runtime that serves them has to agree.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import train
from batches import START
from export import write_checkpoint
from network import forward, head
from novels import Chapter, read_novels, split
from parameters import Params
from shape import STRETCH, Shape
from tokenizers import Tokenizer

GOLDEN_TOKENS, GOLDEN_STRIDE = 97, 8


def text_of(chapters: list[Chapter]) -> str:
    """One paragraph a line."""
    return "".join(f"{paragraph}\n" for chapter in chapters for paragraph in chapter)


def rounded(params: Params) -> Params:
    """What a reader of the checkpoint gets."""
    return {
        name: jnp.asarray(np.asarray(value).astype(ml_dtypes.bfloat16).astype(np.float32)) if value.ndim > 1 else value
        for name, value in params.items()
    }


def golden(shape: Shape, params: Params, biases: Params, tokens: list[int]) -> dict[str, np.ndarray]:
    """Tokens i32[T], and every GOLDEN_STRIDE-th row of the logits of the main model and of MTP, in full float32."""
    output = forward(shape, rounded(params), biases, jnp.asarray([tokens]), exact=True)
    rows = [head(rounded(params), hidden, exact=True)[::GOLDEN_STRIDE] for hidden in (output.main, output.mtp)]
    return {"tokens": np.array(tokens, np.int32), "logits": np.asarray(rows[0]), "mtp_logits": np.asarray(rows[1])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("novels", "run", "model", "tests"):
        parser.add_argument(name, type=Path)
    arguments = parser.parse_args()
    shape = Shape(yarn=STRETCH)
    _, state = train.load(arguments.run / train.CHECKPOINT)
    arrays = ({name: np.asarray(value) for name, value in part.items()} for part in (state.params, state.biases))
    write_checkpoint(shape, *arrays, arguments.model)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(arguments.run / name, arguments.model / name)

    _, held_out = split(read_novels(arguments.novels))
    text = text_of(held_out)
    arguments.tests.mkdir(parents=True, exist_ok=True)
    (arguments.model / "held_out.txt").write_text(text, encoding="utf-8")
    tokenizer = Tokenizer.from_file(str(arguments.run / "tokenizer.json"))
    tokens = [START, *tokenizer.encode(text[:2000]).ids][:GOLDEN_TOKENS]
    np.savez_compressed(arguments.tests / "golden.npz", **golden(shape, state.params, state.biases, tokens))


if __name__ == "__main__":
    main()
