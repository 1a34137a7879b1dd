"""Writes a model as a checkpoint in the Hugging Face layout: config.json and model.safetensors.

Matrices are rounded to bfloat16; norms and correction biases stay float32, as in DeepSeek's files. The MTP layer gets
its own copies of embedding and head, which DeepSeek's layout wants.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
from parameters import EMBEDDING, HEAD, layer_name
from shape import BOS, EOS, PAD, SPECIAL, Shape

Arrays = Mapping[str, npt.NDArray[np.float32]]
_DTYPES = {"bfloat16": "BF16", "float32": "F32"}


def checkpoint_tensors(shape: Shape, params: Arrays, biases: Arrays) -> dict[str, npt.NDArray[np.float32]]:
    """The tensors by their names in a checkpoint."""
    tensors: dict[str, npt.NDArray[np.float32]] = dict(biases)
    for name, value in params.items():
        module, _, part = name.rpartition(".")
        if part == "gate_up":
            for number, both in enumerate(value):
                gate, up = np.split(both, 2)
                tensors[f"{module}.{number}.gate_proj.weight"] = gate
                tensors[f"{module}.{number}.up_proj.weight"] = up
        elif part == "down":
            tensors |= {f"{module}.{number}.down_proj.weight": down for number, down in enumerate(value)}
        else:
            tensors[name] = value
    mtp = layer_name(shape.num_hidden_layers)
    tensors[f"{mtp}.embed_tokens.weight"] = params[f"{EMBEDDING}.weight"]
    tensors[f"{mtp}.shared_head.head.weight"] = params[f"{HEAD}.weight"]
    return dict(sorted(tensors.items()))


def write_checkpoint(shape: Shape, params: Arrays, biases: Arrays, directory: Path, rounded: bool = True) -> None:
    """Writes config.json, generation_config.json and model.safetensors, matrices in bfloat16 if `rounded`."""
    directory.mkdir(parents=True, exist_ok=True)
    header: dict[str, object] = {}
    chunks: list[bytes] = []
    end = 0
    for name, value in checkpoint_tensors(shape, params, biases).items():
        stored = value.astype(ml_dtypes.bfloat16) if rounded and value.ndim > 1 else value
        chunks.append(np.ascontiguousarray(stored).tobytes())
        begin, end = end, end + len(chunks[-1])
        header[name] = {"dtype": _DTYPES[stored.dtype.name], "shape": stored.shape, "data_offsets": [begin, end]}
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(raw)) + raw + b"".join(chunks))
    config = shape.config() | {"dtype": "bfloat16" if rounded else "float32"}
    ids = {f"{role}_token_id": SPECIAL.index(token) for role, token in (("bos", BOS), ("eos", EOS), ("pad", PAD))}
    for file, content in (("config.json", config), ("generation_config.json", ids)):
        (directory / file).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
