"""Tensors in files of ``torch.save``, without torch: a zip of one pickle and one blob a tensor.

A pickle can run anything, so only the four names that a tensor needs are let through, and a tensor's size is compared
with its blob and with a limit before it is read.
"""

import pickle
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from eplb.errors import Unplannable
from eplb.load import MAX_CELLS

MAX_PICKLE = 2**24  # bytes
DTYPES = {
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "ByteStorage": "u1",
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
}


@dataclass(frozen=True)
class _Storage:
    dtype: np.dtype[Any]
    key: str
    length: int


def read(file: BinaryIO) -> Any:
    """The saved object, NumPy arrays in place of tensors."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            if len(names) != 1 or archive.getinfo(names[0]).file_size > MAX_PICKLE:
                raise Unplannable("this is no file of torch.save, or one with too much besides tensors")
            with archive.open(names[0]) as member:
                return _Reader(member, archive, names[0].removesuffix("data.pkl")).load()
    except (zipfile.BadZipFile, pickle.UnpicklingError, EOFError, KeyError, IndexError, TypeError) as error:
        raise Unplannable(f"this is no readable file of torch.save: {error}") from error


class _Reader(pickle.Unpickler):
    def __init__(self, file: Any, archive: zipfile.ZipFile, prefix: str) -> None:
        super().__init__(file)
        self._archive, self._prefix = archive, prefix

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in DTYPES:
            return np.dtype(DTYPES[name])
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return self._tensor
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        raise Unplannable(f"the file asks for {module}.{name}; only plain tensors are read")

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key, _, length = pid
        if kind != "storage" or not isinstance(dtype, np.dtype) or not isinstance(length, int):
            raise Unplannable("the file holds something other than tensors of numbers")
        return _Storage(dtype, str(key), length)

    def _tensor(self, storage: _Storage, offset: int, size: Any, stride: Any, *_: Any) -> NDArray[np.generic]:
        cells = int(np.prod(size, dtype=object))
        packed = tuple(int(np.prod(size[at + 1 :], dtype=object)) for at in range(len(size)))
        dense = all(have == want or extent < 2 for have, want, extent in zip(stride, packed, size, strict=True))
        if not dense or offset < 0 or min(size, default=1) < 0 or not 0 <= cells + offset <= storage.length:
            raise Unplannable(f"a tensor of {tuple(size)} is not stored row by row")
        blob = self._archive.getinfo(f"{self._prefix}data/{storage.key}")
        if storage.length > MAX_CELLS or blob.file_size != storage.length * storage.dtype.itemsize:
            raise Unplannable(f"a tensor of {tuple(size)} is too large, or its data is cut short")
        values = np.frombuffer(self._archive.read(blob), storage.dtype, cells, offset * storage.dtype.itemsize)
        return values.reshape(size)


def write(file: BinaryIO, tensor_name: str, tensor: NDArray[np.int64], **numbers: int) -> None:
    """A dictionary of one int64 tensor and some small numbers, as ``torch.load`` reads it, weights_only included."""
    values = np.ascontiguousarray(tensor, "<i8")
    strides = [stride // 8 for stride in values.strides]
    body = [b"\x80\x02}("]
    for name, number in numbers.items():
        body += [_text(name), _number(number)]
    body += [
        _text(tensor_name),
        b"ctorch._utils\n_rebuild_tensor_v2\n((",
        *(_text("storage"), b"ctorch\nLongStorage\n", _text("0"), _text("cpu"), _number(values.size)),
        b"tQ",
        *(_number(0), _numbers(values.shape), _numbers(strides)),
        b"\x89ccollections\nOrderedDict\n)RtRu.",
    ]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", b"".join(body))
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/data/0", values.tobytes())
        archive.writestr("archive/version", "3\n")


def _text(text: str) -> bytes:
    return b"X" + len(text.encode()).to_bytes(4, "little") + text.encode()


def _number(number: int) -> bytes:
    size = max(1, (number.bit_length() + 8) // 8)
    return b"\x8a" + size.to_bytes(1, "little") + number.to_bytes(size, "little", signed=True)


def _numbers(numbers: Any) -> bytes:
    return b"(" + b"".join(_number(int(number)) for number in numbers) + b"t"
