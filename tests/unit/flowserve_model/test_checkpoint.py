"""A checkpoint that cannot be served is refused with one error that names file and tensor, before weights are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from flowserve.model import CheckpointError, ExpertWeights, Model, Weights
from flowserve.model.checkpoint import Checkpoint

from .checkpoints import TINY, Damage, write_tensors

GATE = "model.layers.2.mlp.experts.7.gate_proj.weight"
CopyOfTiny = Callable[[Damage], Path]


def test_a_missing_tensor_is_named(copy_of_tiny: CopyOfTiny) -> None:
    directory = copy_of_tiny(lambda tensors: tensors.pop(GATE))
    with pytest.raises(CheckpointError, match=f"{GATE} is missing"):
        Weights.open(directory)


def test_a_wrong_shape_is_named_with_both_shapes(copy_of_tiny: CopyOfTiny) -> None:
    directory = copy_of_tiny(lambda tensors: tensors.update({GATE: np.zeros((64, 48), np.float32)}))
    with pytest.raises(CheckpointError, match=rf"model.safetensors: {GATE} has shape \[64, 48\], .* \[48, 64\]"):
        Weights.open(directory)


def test_a_wrong_dtype_is_named_before_anything_is_read(copy_of_tiny: CopyOfTiny) -> None:
    directory = copy_of_tiny(lambda tensors: tensors.update({GATE: tensors[GATE].astype(np.int64)}))
    with pytest.raises(CheckpointError, match=rf"model\.safetensors: {GATE} has dtype I64; supported are F32, F16"):
        Weights.open(directory)


def test_bytes_without_scales_are_refused(copy_of_tiny: CopyOfTiny) -> None:
    directory = copy_of_tiny(lambda tensors: tensors.update({GATE: tensors[GATE].astype(np.int8)}))
    with pytest.raises(CheckpointError, match=rf"{GATE}_scale is missing"):
        Weights.open(directory)


def test_only_projections_may_be_bytes(copy_of_tiny: CopyOfTiny) -> None:
    norm = "model.layers.1.input_layernorm.weight"
    directory = copy_of_tiny(lambda tensors: tensors.update({norm: tensors[norm].astype(np.int8)}))
    with pytest.raises(CheckpointError, match=rf"{norm} is stored as I8, which only projections may be"):
        Weights.open(directory)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused(copy_of_tiny: CopyOfTiny, value: float) -> None:
    def damage(tensors: dict[str, np.ndarray]) -> None:
        tensors[GATE][3, 4] = value

    weights = Weights.open(copy_of_tiny(damage))
    with pytest.raises(CheckpointError, match=f"{GATE} holds NaN or infinity"):
        ExpertWeights(weights)


def test_a_rank_reads_its_own_experts_only(copy_of_tiny: CopyOfTiny) -> None:
    def damage(tensors: dict[str, np.ndarray]) -> None:
        tensors[GATE][0, 0] = np.nan  # expert 7

    weights = Weights.open(copy_of_tiny(damage))
    Model(weights, 8)
    assert all(list(each.held) == list(range(8, 16)) for each in ExpertWeights(weights, range(8, 16)).layers.values())


def test_half_precision_checkpoints_load(copy_of_tiny: CopyOfTiny) -> None:
    def damage(tensors: dict[str, np.ndarray]) -> None:
        for name in tensors:
            tensors[name] = tensors[name].astype(np.float16)

    assert Weights.open(copy_of_tiny(damage)).table("lm_head").dtype == np.float32


def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"model\.safetensors: cannot be read"):
        Checkpoint(tmp_path)


class TestShards:
    def write(self, directory: Path, weight_map: object) -> Path:
        write_tensors(directory / "one.safetensors", {"a": np.ones(2, np.float32)})
        write_tensors(directory / "two.safetensors", {"b": np.full(3, 2, np.float32)})
        (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
        return directory

    def test_tensors_come_from_the_shard_that_the_index_names(self, tmp_path: Path) -> None:
        checkpoint = Checkpoint(self.write(tmp_path, {"a": "one.safetensors", "b": "two.safetensors"}))
        checkpoint.check([("a", (2,)), ("b", (3,))])
        assert checkpoint.read("b").tolist() == [2, 2, 2]

    def test_an_index_that_is_wrong_about_a_shard_is_refused(self, tmp_path: Path) -> None:
        checkpoint = Checkpoint(self.write(tmp_path, {"a": "two.safetensors"}))
        with pytest.raises(CheckpointError, match=r"two\.safetensors: a is missing"):
            checkpoint.check([("a", (2,))])

    def test_a_missing_shard_is_named(self, tmp_path: Path) -> None:
        checkpoint = Checkpoint(self.write(tmp_path, {"a": "three.safetensors"}))
        with pytest.raises(CheckpointError, match=r"three\.safetensors: cannot be read"):
            checkpoint.check([("a", (2,))])

    @pytest.mark.parametrize("shard", ["../one.safetensors", "/etc/passwd", "config.json", "..", 7])
    def test_an_index_stays_in_its_directory(self, tmp_path: Path, shard: object) -> None:
        with pytest.raises(CheckpointError, match="no name of a safetensors file beside it"):
            Checkpoint(self.write(tmp_path, {"a": shard}))

    def test_an_index_without_a_map_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match="weight_map must be an object"):
            Checkpoint(self.write(tmp_path, None))


def test_the_example_has_every_tensor_of_its_configuration() -> None:
    assert Weights.open(TINY).config.moe_layers == range(1, 4)
