"""A safetensors file is hostile until its header is proven sound."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flowserve.model import CheckpointError
from flowserve.model.safetensors import SafetensorsFile

from .checkpoints import write_safetensors, write_tensors


def entry(begin: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_reads_what_was_written(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    halves = np.array([1.5, -2.0], np.float16)
    file = SafetensorsFile(write_tensors(tmp_path / "m.safetensors", {"a": values, "b": halves}))
    np.testing.assert_array_equal(file.read("a"), values)
    np.testing.assert_array_equal(file.read("b"), halves.astype(np.float32))
    assert not file.read("a").flags.owndata, "float32 is a view into the file"
    file.forget_pages()
    np.testing.assert_array_equal(file.read("a"), values)


def test_bfloat16_is_widened(tmp_path: Path) -> None:
    values = np.array([1.0, -0.15625, 3.0e38], np.float32)
    upper = (values.view(np.uint32) >> 16).astype(np.uint16)
    path = write_safetensors(tmp_path / "m.safetensors", {"a": entry(0, 6, [3], "BF16")}, upper.tobytes())
    expected = (upper.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(SafetensorsFile(path).read("a"), expected)


@pytest.mark.parametrize(
    ("header", "size", "message"),
    [
        pytest.param({"a": entry(0, 8, [2]), "b": entry(4, 12, [2])}, 12, "b overlaps a", id="overlap"),
        pytest.param({"a": entry(0, 8, [2]), "b": entry(0, 8, [2])}, 8, "b overlaps a", id="alias"),
        pytest.param({"a": entry(4, 8, [1])}, 8, "4 bytes before a belong to no tensor", id="hole"),
        pytest.param({"a": entry(0, 4, [1])}, 8, "its last 4 bytes belong to no tensor", id="tail"),
        pytest.param({"a": entry(0, 400, [100])}, 8, "a ends at byte .* truncated", id="truncated"),
        pytest.param({"a": entry(0, 8, [3])}, 8, "a: .* takes 12", id="shape against offsets"),
        pytest.param({"a": entry(8, 0, [2])}, 8, "a: data_offsets must be two rising", id="falling offsets"),
        pytest.param({"a": entry(-8, 0, [2])}, 8, "a: data_offsets must be", id="negative offset"),
        pytest.param({"a": entry(0, 2**70, [2**68])}, 8, "a: shape must be", id="beyond 64 bits"),
        pytest.param({"a": entry(0, 8, [-2])}, 8, "a: shape must be", id="negative shape"),
        pytest.param({"a": entry(0, 4, [True])}, 4, "a: shape must be", id="boolean shape"),
        pytest.param({"a": entry(0, 4, [1] * 9)}, 4, "a: shape must be at most 8", id="dimensions"),
        pytest.param({"a": entry(0, 8, [2], "F31")}, 8, "a: unknown dtype 'F31'", id="dtype"),
        pytest.param({"a": {"dtype": "F32", "shape": [1]}}, 4, "a: its header entry must hold", id="no offsets"),
        pytest.param({"a": [1, 2]}, 4, "a: its header entry must hold", id="entry no object"),
        pytest.param(b"[]", 0, "must be a JSON object", id="header no object"),
        pytest.param(b"{", 0, "not valid JSON", id="header no JSON"),
        pytest.param(b"\xff\xfe", 0, "not valid JSON", id="header no text"),
        pytest.param(b"[" * 100_000, 0, "not valid JSON", id="deep nesting"),
        pytest.param(b'{"a": 1, "a": 2}', 0, "same name twice", id="duplicate name"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path: Path, header: dict[str, Any] | bytes, size: int, message: str) -> None:
    path = write_safetensors(tmp_path / "bad.safetensors", header, bytes(size))
    with pytest.raises(CheckpointError, match=message) as refusal:
        SafetensorsFile(path)
    assert str(path) in str(refusal.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "only 0 bytes long", id="empty"),
        pytest.param(b"\x10\0\0", "only 3 bytes long", id="no length"),
        pytest.param(struct.pack("<Q", 1000) + b"{}", "claims 1000 bytes, but the file has 10", id="truncated header"),
        pytest.param(struct.pack("<Q", 2**63), "above the limit", id="huge header"),
    ],
)
def test_a_file_too_short_for_its_header_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        SafetensorsFile(path)


def test_a_huge_header_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "bad.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 1 << 40))
        file.truncate(1 << 41)  # sparse: the header would be there
    with pytest.raises(CheckpointError, match="above the limit"):
        SafetensorsFile(path)


def test_every_cut_of_a_sound_file_is_refused(tmp_path: Path) -> None:
    whole = write_tensors(tmp_path / "m.safetensors", {"a": np.ones((2, 2), np.float32)}).read_bytes()
    cut = tmp_path / "cut.safetensors"
    for length in range(len(whole)):
        cut.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            SafetensorsFile(cut)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"none\.safetensors: cannot be read: No such file"):
        SafetensorsFile(tmp_path / "none.safetensors")


def test_integers_are_no_weights(tmp_path: Path) -> None:
    file = SafetensorsFile(write_tensors(tmp_path / "m.safetensors", {"a": np.zeros(2, np.int64)}))
    with pytest.raises(CheckpointError, match="a has dtype I64; supported are F32, F16, BF16"):
        file.read("a")


def test_metadata_is_no_tensor(tmp_path: Path) -> None:
    header = json.dumps({"__metadata__": {"format": "pt"}, "a": entry(0, 4, [1])}).encode() + b"   "
    assert list(SafetensorsFile(write_safetensors(tmp_path / "m.safetensors", header, bytes(4))).tensors) == ["a"]
