"""Weights stored as float8 e4m3 with a scale for each block, as DeepSeek publishes them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from flowserve.model import CheckpointError, Weights
from flowserve.model.safetensors import SafetensorsFile

from .checkpoints import TINY, write_safetensors

MODULE = "model.layers.0.mlp.down_proj"
BLOCK = (48, 64)  # neither divides the weight's 64 × 160


def test_codes_mean_what_the_format_says(tmp_path: Path) -> None:
    codes = bytes([0x00, 0x80, 0x01, 0x07, 0x08, 0x38, 0xB8, 0x7E, 0xFE])
    header = {"a": {"dtype": "F8_E4M3", "shape": [len(codes)], "data_offsets": [0, len(codes)]}}
    values = SafetensorsFile(write_safetensors(tmp_path / "m.safetensors", header, codes)).read("a")
    np.testing.assert_array_equal(values, [0.0, -0.0, 2**-9, 7 * 2**-9, 2**-6, 1.0, -1.0, 448.0, -448.0])


def float8_copy(directory: Path, scales: np.ndarray | None, codes: np.ndarray, block: object = BLOCK) -> Path:
    """The tiny model with one weight in float8."""
    config = json.loads((TINY / "config.json").read_text())
    if block:
        config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": block}
    (directory / "config.json").write_text(json.dumps(config))
    source = (TINY / "model.safetensors").read_bytes()
    length = int.from_bytes(source[:8], "little")
    header, data = json.loads(source[8 : 8 + length]), source[8 + length :]
    changed: dict[str, tuple[str, list[int], bytes]] = {
        name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
        for name, entry in header.items()
        if name != "__metadata__"
    }
    changed[f"{MODULE}.weight"] = ("F8_E4M3", list(codes.shape), codes.tobytes())
    if scales is not None:
        changed[f"{MODULE}.weight_scale_inv"] = ("F32", list(scales.shape), scales.tobytes())
    entries, blob = {}, b""
    for name, (dtype, shape, raw) in changed.items():
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(blob), len(blob) + len(raw)]}
        blob += raw
    write_safetensors(directory / "model.safetensors", entries, blob)
    return directory


CODES = (np.arange(64 * 160) % 127).astype(np.uint8).reshape(64, 160)
SCALES = np.arange(1, 7, dtype=np.float32).reshape(2, 3)


def test_each_block_has_its_scale(tmp_path: Path) -> None:
    weight = Weights.open(float8_copy(tmp_path, SCALES, CODES)).table(MODULE)
    whole = np.kron(SCALES, np.ones(BLOCK, np.float32))[:64, :160]
    exponent, mantissa = CODES >> 3, CODES & 7
    values = np.where(exponent == 0, mantissa / 512, (1 + mantissa / 8) * 2.0 ** (exponent.astype(float) - 7))
    np.testing.assert_array_equal(weight, (values * whole).astype(np.float32))


def test_a_missing_scale_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=rf"{MODULE}\.weight_scale_inv is missing"):
        Weights.open(float8_copy(tmp_path, None, CODES))


def test_scales_of_another_shape_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"weight_scale_inv has shape \[3, 2\], but .* \[2, 3\]"):
        Weights.open(float8_copy(tmp_path, SCALES.T.copy(), CODES))


def test_float8_without_its_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json has no quantization_config"):
        Weights.open(float8_copy(tmp_path, SCALES, CODES, block=None))


def test_a_code_that_is_no_number_is_refused(tmp_path: Path) -> None:
    codes = CODES.copy()
    codes[5, 6] = 0x7F
    with pytest.raises(CheckpointError, match=rf"{MODULE}\.weight holds NaN"):
        Weights.open(float8_copy(tmp_path, SCALES, codes)).table(MODULE)
