"""The tensors of a checkpoint directory, in one safetensors file or sharded by `model.safetensors.index.json`.

`Checkpoint` answers two questions: is every tensor that a model needs there with the right shape (`check`, which reads
headers only), and what is in one (`read`). Tensors that the model does not ask for are allowed and never read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from flowserve.model.arrays import FloatArray
from flowserve.model.errors import CheckpointError
from flowserve.model.fields import read_json_object
from flowserve.model.safetensors import SafetensorsFile

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


class Checkpoint:
    """An open checkpoint; shards are opened when first needed and stay mapped."""

    def __init__(self, directory: Path, elsewhere: Mapping[str, Path] | None = None) -> None:
        """Files of tensors that `elsewhere` names lie there, not in `directory`.

        Raises CheckpointError if neither of the two files is to be found, or a damaged one.
        """
        self.directory = directory
        self._elsewhere = elsewhere or {}
        self._files: dict[str, SafetensorsFile] = {}
        index = directory / INDEX_FILE
        if index.exists():
            self._shard_of = _read_index(index)
        else:
            self._shard_of = dict.fromkeys(self._file(SINGLE_FILE).tensors, SINGLE_FILE)

    def names(self) -> list[str]:
        """Every tensor that there is."""
        return list(self._shard_of)

    def check(self, shapes: Iterable[tuple[str, tuple[int, ...]]]) -> None:
        """Raises CheckpointError naming the first tensor of `shapes` that is missing, or has another shape or dtype."""
        for name, shape in shapes:
            file = self._holder(name)
            found = file.tensors[name].shape
            file.check_dtype(name)
            if found != shape:
                raise CheckpointError(
                    f"{file.path}: {name} has shape {list(found)}, but config.json makes it {list(shape)}"
                )

    def dtype(self, name: str) -> str:
        """How the tensor is stored, in the format's spelling."""
        return self._holder(name).tensors[name].dtype

    def shape(self, name: str) -> tuple[int, ...]:
        return self._holder(name).tensors[name].shape

    def raw(self, name: str) -> npt.NDArray[np.int8]:
        """An I8 tensor, as a read-only view of the file."""
        return self._holder(name).raw(name)

    def read(self, name: str) -> FloatArray:
        """The tensor as float32, perhaps a read-only view. Raises CheckpointError if any element is not finite."""
        file = self._holder(name)
        array = file.read(name)
        # The extremes of an array with a NaN are NaN: no temporary as large as the tensor is needed.
        if array.size and not (np.isfinite(array.min()) and np.isfinite(array.max())):
            raise CheckpointError(f"{file.path}: {name} holds NaN or infinity")
        return array

    def forget_pages(self) -> None:
        """Gives back the memory of what was read: for callers that keep their own copies."""
        for file in self._files.values():
            file.forget_pages()

    def _holder(self, name: str) -> SafetensorsFile:
        shard = self._shard_of.get(name)
        if shard is None:
            raise CheckpointError(f"{self.directory}: {name} is missing")
        file = self._file(shard)
        if name not in file.tensors:
            raise CheckpointError(f"{file.path}: {name} is missing, though {INDEX_FILE} says it is there")
        return file

    def _file(self, name: str) -> SafetensorsFile:
        if name not in self._files:
            self._files[name] = SafetensorsFile(self._elsewhere.get(name, self.directory / name))
        return self._files[name]


def _read_index(path: Path) -> dict[str, str]:
    """Tensor name -> name of the file in the same directory that holds it."""
    weight_map = read_json_object(path).get("weight_map")
    if not isinstance(weight_map, dict):
        raise CheckpointError(f"{path}: weight_map must be an object")
    for tensor, shard in weight_map.items():
        if not isinstance(shard, str) or Path(shard).name != shard or not shard.endswith(".safetensors"):
            raise CheckpointError(f"{path}: {tensor} is in {shard!r}, which is no name of a safetensors file beside it")
    return weight_map
