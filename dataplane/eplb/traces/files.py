"""Load files by name: which format, read or write, and how many slices.

``.npz`` ours · ``.pt`` and ``.json`` SGLang · ``.jsonl``, or a directory of them, Megatron · ``trace:NAME`` made up.
"""

from contextlib import ExitStack
from pathlib import Path

import numpy as np

from eplb.errors import Unplannable
from eplb.load import LoadWindow
from eplb.traces import megatron, npz, sglang
from eplb.traces.generate import generate

MADE_UP = "trace:"
READ = (".npz", ".pt", ".json", ".jsonl")


def read_load(name: str, *, part: str = "", top_k: int = 0) -> LoadWindow:
    """The load in a file; ``part`` names an array of an .npz, or fit or next of a made-up trace.

    ``top_k`` is used where the file does not say it. Unplannable also if the file cannot be opened.
    """
    if name.startswith(MADE_UP):
        trace = generate(name.removeprefix(MADE_UP))
        return trace.next if part == "next" else trace.fit
    path = Path(name)
    if path.suffix not in READ and not path.is_dir():
        raise Unplannable(f"{name}: load is read from {', '.join(READ)}, a directory of .jsonl, or {MADE_UP}NAME")
    try:
        if path.is_dir() or path.suffix == ".jsonl":
            return _megatron(path)
        with path.open("rb") as file:
            if path.suffix != ".npz":
                return sglang.read(file, top_k)
            window = npz.read_load(file, part)
            return LoadWindow(window.counts, window.top_k or top_k)
    except OSError as error:
        raise Unplannable(f"{name}: {error.strerror}") from error


def write_load(path: Path, window: LoadWindow) -> None:
    """Writes load in the format that the name asks for."""
    writers = {".npz": npz.write_load, ".pt": sglang.write, ".jsonl": megatron.write}
    if path.suffix not in writers:
        raise Unplannable(f"{path}: load is written as {', '.join(writers)}")
    with path.open("wb") as file:
        writers[path.suffix](file, window)


def merge_slices(window: LoadWindow, slices: int) -> LoadWindow:
    """At most ``slices`` slices: neighbours added up, as evenly as it goes."""
    if slices < 1:
        raise Unplannable(f"load cannot be merged into {slices} slices")
    if window.slices <= slices:
        return window
    starts = np.arange(slices) * window.slices // slices
    return LoadWindow(np.add.reduceat(window.counts, starts, axis=0), window.top_k)


def _megatron(path: Path) -> LoadWindow:
    paths = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    with ExitStack() as stack:
        return megatron.read(stack.enter_context(one.open("rb")) for one in paths)
