"""Load files: what is written is read back, what other programs write is read, what is hostile is refused."""

import hashlib
import io
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from eplb import LoadWindow, Placement, Unplannable
from eplb.traces import megatron, npz, sglang, torchfile
from eplb.traces.files import merge_slices, read_load, write_load
from eplb.traces.generate import RECIPES, generate
from eplb.traces.routing import inclusion_probabilities, route

SMALL_FIT = "3e58f2202977d0094a2d97892d61b6f42da1694daef376831b9ff39fecffa8ad"


def test_a_made_up_trace_is_always_the_same() -> None:
    counts = generate("small").fit.counts.astype(np.uint16)
    assert hashlib.sha256(counts.tobytes()).hexdigest() == SMALL_FIT


@pytest.mark.parametrize("name", ["small", "domain_shift"])
def test_a_gate_could_have_produced_a_made_up_trace(name: str) -> None:
    recipe, trace = RECIPES[name], generate(name)
    for window in (trace.fit, trace.next):
        assert window.counts.max() <= recipe.tokens
        assert (window.counts.sum(2) == recipe.tokens * recipe.top_k).all()


def test_no_expert_gets_more_than_every_token() -> None:
    chance = inclusion_probabilities([1000.0, 1, 1, 1], 2)
    assert chance.max() == pytest.approx(0.97)
    assert chance.sum() == pytest.approx(2)
    assert route(np.random.default_rng(1), [1000.0, 1, 1, 1], 50, 2).sum() == 100
    with pytest.raises(Unplannable, match="cannot pick 3"):
        inclusion_probabilities([1.0, 1, 0], 3)


@pytest.mark.parametrize("suffix", [".npz", ".pt", ".jsonl"])
def test_what_is_written_is_read_back(tmp_path: Path, suffix: str) -> None:
    window = generate("small").fit
    write_load(tmp_path / f"load{suffix}", window)
    found = read_load(str(tmp_path / f"load{suffix}"), top_k=2)
    assert np.array_equal(found.counts, window.counts)
    assert found.top_k == 2


def test_a_placement_is_read_back_and_handed_to_sglang(tmp_path: Path) -> None:
    placement = Placement.of([[[0, 1], [2, 0]]], 3)
    file = io.BytesIO()
    npz.write_placement(file, placement)
    file.seek(0)
    assert np.array_equal(npz.read_placement(file).slots, placement.slots)
    out = io.BytesIO()
    sglang.write_placement(out, placement)
    assert json.loads(out.getvalue()) == {"physical_to_logical_map": [[0, 1, 2, 0]]}
    with pytest.raises(Unplannable, match="every slot"):
        sglang.write_placement(io.BytesIO(), Placement.of([[[0, -1]]], 1))


def test_unrecorded_passes_of_sglang_are_left_out_and_dense_layers_stay() -> None:
    counts = np.zeros((4, 2, 3), np.int64)
    counts[[0, 3], 1] = [1, 2, 3]
    window = sglang.read(io.BytesIO(json.dumps({"logical_count": counts.tolist()}).encode()))
    assert window.counts.shape == (2, 2, 3)
    assert window.idle.tolist() == [True, False]


def test_ranks_of_megatron_add_up_and_mtp_layers_come_last(tmp_path: Path) -> None:
    record = {"step": 7, "stage": "pre_dispatch", "block": "decoder", "layer": 3, "rank": 0, "num_tokens": 2, "topk": 2}
    lines = [
        {**record, "top_indices": [[0, 1], [0, 2]]},
        {**record, "layer": 0, "mtp_idx": 0, "block": "mtp", "top_indices": [[3, 1], [3, 2]]},
    ]
    for rank in range(2):
        text = "\n".join(json.dumps({**line, "rank": rank}) for line in lines)
        (tmp_path / f"rank{rank}.jsonl").write_text(text + "\n\n")
    window = read_load(str(tmp_path))
    assert window.counts.tolist() == [[[4, 2, 2, 0], [0, 2, 2, 4]]]
    assert window.top_k == 2


def test_counts_that_no_gate_could_produce_are_no_router_trace() -> None:
    with pytest.raises(Unplannable, match="slice 0, layer 0"):
        megatron.write(io.BytesIO(), LoadWindow.of([[[3, 1]]], top_k=2))


@pytest.mark.parametrize(
    "line", ["nonsense", "[1]", '{"step": 0}', '{"step": 0, "layer": 0, "top_indices": [[0], [1, 2]]}']
)
def test_what_is_no_record_is_refused_with_its_place(line: str) -> None:
    with pytest.raises(Unplannable, match="file 0"):
        megatron.read([io.BytesIO(line.encode())])


@pytest.mark.parametrize("expert", [-1, 2**40])
def test_a_wild_expert_id_asks_for_no_memory(expert: int) -> None:
    line = json.dumps({"step": 0, "layer": 0, "top_indices": [[0, expert]]})
    with pytest.raises(Unplannable, match="expert ids"):
        megatron.read([io.BytesIO(line.encode())])


class Runs:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("run",))


def torch_file(pickled: bytes, data: bytes = b"") -> io.BytesIO:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/data/0", data)
    file.seek(0)
    return file


def test_a_pickle_that_would_run_something_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Unplannable, match="only plain tensors"):
        torchfile.read(torch_file(pickle.dumps(Runs(), protocol=2)))
    assert capsys.readouterr().out == ""


def test_a_tensor_larger_than_its_data_is_refused() -> None:
    file = io.BytesIO()
    torchfile.write(file, "logical_count", np.ones((2, 2, 2), np.int64))
    with zipfile.ZipFile(file) as archive:
        pickled = archive.read("archive/data.pkl")
    with pytest.raises(Unplannable, match="cut short"):
        torchfile.read(torch_file(pickled, b"\0" * 8))


def test_an_array_header_that_lies_about_its_size_asks_for_no_memory() -> None:
    header = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little")
    header += b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999, 9999, 999), }".ljust(117) + b"\n"
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("counts.npy", header)
    file.seek(0)
    with pytest.raises(Unplannable, match="too large"):
        npz.read_load(file)


@pytest.mark.parametrize("name", ["load.npz", "load.pt", "load.json", "load.jsonl"])
def test_rubbish_is_refused_in_every_format(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PK rubbish")
    with pytest.raises(Unplannable):
        read_load(str(tmp_path / name))
    with pytest.raises(Unplannable):
        read_load(str(tmp_path / "absent" / name))


def test_an_unknown_name_says_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(Unplannable, match="trace:NAME"):
        read_load("load.csv")
    with pytest.raises(Unplannable, match="paper, mild"):
        read_load("trace:none")
    with pytest.raises(Unplannable, match="is written as"):
        write_load(tmp_path / "load.csv", generate("small").fit)


def test_merged_slices_keep_every_token() -> None:
    window = generate("small").fit
    merged = merge_slices(window, 3)
    assert merged.slices == 3
    assert np.array_equal(merged.counts.sum(0), window.counts.sum(0))
    assert merge_slices(window, 100) is window
