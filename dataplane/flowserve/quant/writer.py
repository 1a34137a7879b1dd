"""Writes one safetensors file, tensor by tensor: never more than one of them is in memory.

The header comes first and needs every shape, so shapes are given before the tensors, and the tensors must follow in
the same order. The file appears under its name only when it is complete.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_FORMATS = {"F32": "<f4", "F16": "<f2", "I8": "|i1"}
_ALIGNMENT = 8


@dataclass(frozen=True)
class TensorShape:
    """`dtype` in the format's spelling: F32, F16 or I8."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(_FORMATS[self.dtype]).itemsize


def write_safetensors(
    path: Path, shapes: Mapping[str, TensorShape], tensors: Iterable[tuple[str, npt.NDArray[Any]]]
) -> None:
    """Raises ValueError if `tensors` are not those of `shapes`, in their order and shape."""
    header: dict[str, object] = {}
    position = 0
    for name, one in shapes.items():
        header[name] = {"dtype": one.dtype, "shape": one.shape, "data_offsets": (position, position + one.nbytes)}
        position += one.nbytes
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % _ALIGNMENT)
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        for (name, one), (given, array) in zip(shapes.items(), tensors, strict=True):
            if given != name or array.shape != one.shape:
                raise ValueError(f"{path}: {name} of shape {one.shape} is due, not {given} of shape {array.shape}")
            np.ascontiguousarray(array, dtype=_FORMATS[one.dtype]).tofile(file)
    partial.replace(path)
