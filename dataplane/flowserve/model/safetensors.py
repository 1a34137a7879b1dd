"""Reads one safetensors file: 8 bytes of header length, a JSON header, then the tensors' bytes.

The header is hostile until proven sound. Before the file is mapped it is checked that the header is inside the file
and below a bound; that every tensor has a known dtype, a shape, and offsets that agree with them; and that the
tensors cover the data exactly, neither overlapping nor leaving bytes that nobody names (the format forbids holes).
After that a tensor is a view into the mapping: only the pages of the tensors used are ever read.
Format: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import functools
import math
import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from flowserve.model.arrays import FloatArray
from flowserve.model.errors import CheckpointError
from flowserve.model.fields import parse_json_object

MAX_HEADER_BYTES = 16 << 20  # 60 layers of 256 experts in one file take 6 MB
MAX_DIMENSIONS = 8
_LENGTH = struct.Struct("<Q")
_ITEM_SIZES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip
_READABLE = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "F8_E4M3": "|u1", "I8": "|i1"}


@dataclass(frozen=True)
class TensorInfo:
    """Where a tensor lies: its dtype in the format's spelling, its shape, and its bytes within the file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class SafetensorsFile:
    """One open file; `tensors` is known at once, bytes are read when a tensor is asked for."""

    def __init__(self, path: Path) -> None:
        """Raises CheckpointError if the file is missing or its header does not describe it."""
        self.path = path
        try:
            with path.open("rb") as file:
                self.tensors = _read_header(file, path)
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error

    def check_dtype(self, name: str) -> None:
        """Raises CheckpointError if `read` does not know how the tensor is stored."""
        dtype = self.tensors[name].dtype
        if dtype not in _READABLE:
            raise CheckpointError(f"{self.path}: {name} has dtype {dtype}; supported are {', '.join(_READABLE)}")

    def read(self, name: str) -> FloatArray:
        """The tensor as float32: a read-only view of the file if it is stored so, else a converted copy.

        The 8-bit formats mean little without their scales, which are tensors of their own.
        """
        self.check_dtype(name)
        info = self.tensors[name]
        stored = _READABLE[info.dtype]
        raw: npt.NDArray[Any] = np.frombuffer(
            self._map, dtype=stored, count=math.prod(info.shape), offset=info.begin
        ).reshape(info.shape)
        if info.dtype == "BF16":  # the upper half of a float32
            return (raw.astype(np.uint32) << 16).view(np.float32)
        if info.dtype == "F8_E4M3":
            values: FloatArray = _e4m3()[raw]
            return values
        return raw.astype(np.float32, copy=False)

    def raw(self, name: str) -> npt.NDArray[np.int8]:
        """An I8 tensor as it is: a read-only view of the file."""
        info = self.tensors[name]
        if info.dtype != "I8":
            raise CheckpointError(f"{self.path}: {name} has dtype {info.dtype}, not I8")
        count = math.prod(info.shape)
        return np.frombuffer(self._map, dtype=np.int8, count=count, offset=info.begin).reshape(info.shape)

    def forget_pages(self) -> None:
        """Lets the system drop the pages read so far from this process; they come back when touched again."""
        self._map.madvise(mmap.MADV_DONTNEED)


@functools.cache
def _e4m3() -> FloatArray:
    """What the 256 codes mean: a sign, 4 bits of exponent with bias 7, 3 bits of mantissa; two NaNs, no infinity."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    size = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0))
    values = np.where(code & 128, -size, size)
    values[code & 127 == 127] = np.nan
    return values.astype(np.float32)


def _read_header(file: BinaryIO, path: Path) -> dict[str, TensorInfo]:
    file_size = os.fstat(file.fileno()).st_size
    prefix = file.read(_LENGTH.size)
    if len(prefix) < _LENGTH.size:
        raise CheckpointError(f"{path}: only {file_size} bytes long, not a safetensors file")
    (length,) = _LENGTH.unpack(prefix)
    if length > MAX_HEADER_BYTES:
        raise CheckpointError(f"{path}: its header claims {length} bytes, above the limit of {MAX_HEADER_BYTES}")
    data_start = _LENGTH.size + length
    if data_start > file_size:
        raise CheckpointError(f"{path}: its header claims {length} bytes, but the file has {file_size}: truncated?")
    header = parse_json_object(file.read(length), f"{path}: header")
    header.pop("__metadata__", None)
    tensors = {name: _tensor(entry, data_start, f"{path}: {name}") for name, entry in header.items()}
    _check_coverage(tensors, data_start, file_size, path)
    return tensors


def _tensor(entry: object, data_start: int, origin: str) -> TensorInfo:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(f"{origin}: its header entry must hold dtype, shape and data_offsets, and nothing else")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _ITEM_SIZES:
        raise CheckpointError(f"{origin}: unknown dtype {dtype!r}")
    if not _naturals(shape) or len(shape) > MAX_DIMENSIONS:
        raise CheckpointError(f"{origin}: shape must be at most {MAX_DIMENSIONS} natural numbers, not {shape!r}")
    if not _naturals(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise CheckpointError(f"{origin}: data_offsets must be two rising natural numbers, not {offsets!r}")
    size = math.prod(shape) * _ITEM_SIZES[dtype]
    if offsets[1] - offsets[0] != size:
        raise CheckpointError(
            f"{origin}: data_offsets {offsets} hold {offsets[1] - offsets[0]} bytes, "
            f"but {dtype} of shape {shape} takes {size}"
        )
    return TensorInfo(dtype, tuple(shape), data_start + offsets[0], data_start + offsets[1])


def _naturals(values: object) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 63 for value in values)


def _check_coverage(tensors: dict[str, TensorInfo], data_start: int, file_size: int, path: Path) -> None:
    position, previous = data_start, "the header"
    for name, info in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if info.end > file_size:
            raise CheckpointError(f"{path}: {name} ends at byte {info.end}, the file at {file_size}: truncated?")
        if info.begin < position:
            raise CheckpointError(f"{path}: {name} overlaps {previous}")
        if info.begin > position:
            raise CheckpointError(f"{path}: {info.begin - position} bytes before {name} belong to no tensor")
        position, previous = info.end, name
    if position != file_size:
        raise CheckpointError(f"{path}: its last {file_size - position} bytes belong to no tensor")
