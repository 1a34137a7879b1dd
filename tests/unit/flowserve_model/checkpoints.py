"""Checkpoint files for tests: the tiny one, and any other, however wrong."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flowserve.model import ModelConfig
from flowserve.model.weights import model_shapes

ROOT = Path(__file__).parents[3]
TINY = ROOT / "examples/models/tiny-deepseek-v3"

Damage = Callable[[dict[str, np.ndarray]], object]


def write_safetensors(path: Path, header: Mapping[str, Any] | bytes, data: bytes = b"") -> Path:
    """A file with this header, however wrong, and this data."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + data)
    return path


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray]) -> Path:
    """A sound file of float32, float16, int64 or int8 tensors."""
    names = {"float32": "F32", "float16": "F16", "int64": "I64", "int8": "I8"}
    header, data = {}, b""
    for name, array in tensors.items():
        end = len(data) + array.nbytes
        header[name] = {"dtype": names[str(array.dtype)], "shape": list(array.shape), "data_offsets": [len(data), end]}
        data += array.tobytes()
    return write_safetensors(path, header, data)


def random_checkpoint(directory: Path, changes: Mapping[str, Any]) -> Path:
    """A model like the tiny one but for `changes` of its config.json, with weights that are the same every time."""
    config = json.loads((TINY / "config.json").read_text()) | changes
    (directory / "config.json").write_text(json.dumps(config))
    draw = np.random.default_rng(5)
    tensors = {
        name: (draw.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)
        for name, shape in model_shapes(ModelConfig.load(directory))
    }
    write_tensors(directory / "model.safetensors", tensors)
    return directory
