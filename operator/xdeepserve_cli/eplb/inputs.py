"""What several commands take: a load, a cluster, placements; and errors as one line instead of a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from eplb import Cluster, LoadWindow, Placement, Unplannable
from eplb.traces import npz, sglang
from eplb.traces.files import merge_slices, read_load

DEFAULT_SLICES = 60

LoadFile = Annotated[str, typer.Argument(help="Load: .npz, SGLang .pt or .json, Megatron .jsonl, or trace:NAME.")]
Npus = Annotated[int, typer.Option("--npus", help="NPUs that hold experts.")]
Slots = Annotated[str, typer.Option("--slots", help="Routed experts an NPU holds: a number, or e.g. 2x256,1x32.")]
TopK = Annotated[int, typer.Option("--top-k", help="Experts a token visits, where the file does not say it.")]
Slices = Annotated[int, typer.Option("--slices", help="Most time slices; neighbours are added up.")]
Part = Annotated[str, typer.Option("--part", help="Array of an .npz; fit or next of a made-up trace.")]
Excluded = Annotated[str, typer.Option("--excluded", help="NPUs that get nothing, e.g. 3,17.")]
Speeds = Annotated[str, typer.Option("--speeds", help="NPUs that are not as fast as the others, e.g. 3=0.6,17=0.5.")]
SharedOn = Annotated[str, typer.Option("--shared-on", help="NPUs that also serve the shared expert, e.g. 256-287.")]
Servers = Annotated[int, typer.Option("--servers", help="Servers, with --groups: hierarchical placement.")]
Groups = Annotated[int, typer.Option("--groups", help="Expert groups, each on one server.")]


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turns what cannot be planned, read or written into one line and exit status 2."""
    try:
        yield
    except Unplannable as error:
        raise typer.BadParameter(str(error)) from error
    except OSError as error:
        raise typer.BadParameter(f"{error.filename}: {error.strerror}") from error


def is_load(name: str) -> bool:
    """Whether a recording is meant, and not an object of a cluster, whose name has no dot and no slash."""
    return name.startswith("trace:") or "." in name or "/" in name or Path(name).exists()


def load_of(name: str, slices: int, part: str = "", top_k: int = 0) -> LoadWindow:
    """The load of a file, in as many slices as asked for."""
    return merge_slices(read_load(name, part=part, top_k=top_k), slices)


def cluster_of(
    npus: int, slots: str, excluded: str = "", shared: str = "", servers: int = 1, groups: int = 1, speeds: str = ""
) -> Cluster:
    """The cluster that the options describe."""
    wide: int | list[int]
    try:
        pieces = [piece.split("x") for piece in slots.split(",")]
        wide = int(slots) if len(pieces) == 1 == len(pieces[0]) else _repeated(pieces)
    except ValueError as error:
        raise typer.BadParameter(f"--slots {slots!r} is neither a number nor like 2x256,1x32") from error
    return Cluster(npus, wide, frozenset(numbers(excluded)), _speeds(npus, speeds), numbers(shared), servers, groups)


def _speeds(npus: int, text: str) -> list[float] | None:
    """``3=0.6,17=0.5`` as the speed of every NPU; None for all alike."""
    if not text:
        return None
    try:
        told = {int(npu): float(speed) for npu, speed in (piece.split("=") for piece in text.split(","))}
    except ValueError as error:
        raise typer.BadParameter(f"--speeds {text!r} is not like 3=0.6,17=0.5") from error
    if strange := [npu for npu in told if not 0 <= npu < npus]:
        raise typer.BadParameter(f"--speeds names NPU {strange[0]}; there are {npus}, from 0")
    return [told.get(npu, 1.0) for npu in range(npus)]


def _repeated(pieces: list[list[str]]) -> list[int]:
    return [int(width) for width, count in pieces for _ in range(min(int(count), 2**20))]


def numbers(text: str) -> list[int]:
    """``3,17,256-287`` as numbers."""
    found: list[int] = []
    try:
        for piece in filter(None, text.split(",")):
            first, _, last = piece.partition("-")
            found += range(int(first), min(int(last or first), 2**20) + 1)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no list of numbers like 3,17,256-287") from error
    return found


def placement_of(path: Path | None, npus: int) -> Placement | None:
    """A placement file, .npz or SGLang's .json; None for None."""
    if path is None:
        return None
    with path.open("rb") as file:
        return sglang.read_placement(file, npus) if path.suffix == ".json" else npz.read_placement(file)


def pinned_base(placement: Placement, base: int) -> NDArray[np.bool_]:
    """[npus, slots]: the first ``base`` slots of each NPU."""
    _, npus, width = placement.slots.shape
    return np.broadcast_to(np.arange(width) < base, (npus, width)).copy()
