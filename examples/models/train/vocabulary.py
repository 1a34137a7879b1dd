"""Learns the tokenizer: byte-level BPE in the layout that `flowserve.text` reads."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shape import BOS, EOS, PAD, SPECIAL, Shape
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

ROLES = {
    "system": "System: {content}\n",
    "user": "User: {content}\n",
    "assistant": "Assistant: {content}\n",
}


def learn(texts: Iterable[str], size: int) -> Tokenizer:
    """A tokenizer of exactly `size` tokens: the special ones, the 256 bytes, and merges learned from `texts`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[AddedToken(spelling, special=True, normalized=False) for spelling in SPECIAL],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != size:
        raise ValueError(f"the texts have merges for {tokenizer.get_vocab_size()} tokens only, not for {size}")
    return tokenizer


def settings(shape: Shape) -> dict[str, Any]:
    """tokenizer_config.json as an object."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": shape.max_position_embeddings,
        "add_bos_token": True,
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "role_template": ROLES,
    }


def save(tokenizer: Tokenizer, shape: Shape, directory: Path) -> None:
    """Writes tokenizer.json and tokenizer_config.json."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"), pretty=False)
    (directory / "tokenizer_config.json").write_text(json.dumps(settings(shape), indent=1) + "\n", encoding="utf-8")
