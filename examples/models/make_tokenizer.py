"""Writes tokenizer.json and tokenizer_config.json of the tiny-deepseek-v3 example.

Usage: python examples/models/make_tokenizer.py [DIRECTORY]

A byte-level BPE of exactly 320 tokens, the vocabulary of the checkpoint: 0 <bos>, 1 <eos>, 2 <pad>, 3 to 258 the bytes
in order (byte b is token b + 3), 259 to 319 the merges learned from WORDS: common English words, each as frequent as
one over its rank (Zipf's law). Learning is deterministic: the most frequent pair, the first in order among equals.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from flowserve.text.byte_level import CHARACTERS, to_characters
from flowserve.text.chat import DEFAULT_ROLES

VOCABULARY = 320
SPECIAL = ("<bos>", "<eos>", "<pad>")
CONTEXT = 4096  # max_position_embeddings of the checkpoint
WORDS = """
the of and to a in is it you that he was for on are with as his they be at one have this from or had by not
but what all were when we there can an your which their said if do will each about how up out them then she
many some so these would other into has more her two like him see time could no make than first been its who
now people my made over did down only way find use may water long little very after words called just where
most know get through back much before go good new write our used me man too any day same right look think
also around another came come work three word must because does part even place well such here take why
things help put years different away again off went old number great
"""


def learn_merges(count: int) -> list[tuple[str, str]]:
    """The first `count` merges, in the order in which they apply."""
    ranked = enumerate(WORDS.split(), start=1)
    words = [(list(to_characters(f" {word}".encode())), 1_000_000 // rank) for rank, word in ranked]
    merges: list[tuple[str, str]] = []
    while len(merges) < count:
        pairs: Counter[tuple[str, str]] = Counter()
        for pieces, frequency in words:
            for pair in pairwise(pieces):
                pairs[pair] += frequency
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        words = [(apply_merge(pieces, best), frequency) for pieces, frequency in words]
    return merges


def apply_merge(pieces: list[str], pair: tuple[str, str]) -> list[str]:
    """`pieces` with every occurrence of `pair`, from the left, joined."""
    result: list[str] = []
    for piece in pieces:
        if result and (result[-1], piece) == pair:
            result[-1] += piece
        else:
            result.append(piece)
    return result


def tokenizer() -> dict[str, Any]:
    """tokenizer.json as an object."""
    merges = learn_merges(VOCABULARY - len(SPECIAL) - len(CHARACTERS))
    spellings = [*SPECIAL, *CHARACTERS, *(left + right for left, right in merges)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    added = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": spelling, **added} for number, spelling in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {spelling: number for number, spelling in enumerate(spellings)},
            "merges": [list(pair) for pair in merges],
        },
    }


def settings() -> dict[str, Any]:
    """tokenizer_config.json as an object."""
    bos, eos, pad = SPECIAL
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": CONTEXT,
        "add_bos_token": True,
        "bos_token": bos,
        "eos_token": eos,
        "pad_token": pad,
        "clean_up_tokenization_spaces": False,
        "role_template": DEFAULT_ROLES,
    }


def main(directory: Path) -> None:
    for name, content in (("tokenizer.json", tokenizer()), ("tokenizer_config.json", settings())):
        (directory / name).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "tiny-deepseek-v3")
