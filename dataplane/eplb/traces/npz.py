"""Our own files: NumPy archives of load (``counts``, or ``fit`` and ``next``; ``top_k``) and of placements.

Array headers are read and judged before any array is, so a small file cannot ask for much memory; nothing is unpickled.
"""

import zipfile
from collections.abc import Mapping
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from eplb.errors import Unplannable
from eplb.load import MAX_CELLS, LoadWindow
from eplb.placement import Placement

PARTS = ("counts", "fit", "next")


def read_load(file: BinaryIO, part: str = "") -> LoadWindow:
    """The window ``part``; without a name, the first there is of counts, fit, next."""
    arrays = _arrays(file, {*PARTS, part, "top_k"} - {""})
    found = [name for name in ([part] if part else PARTS) if name in arrays]
    if not found:
        raise Unplannable(f"the archive has no array {part or ' or '.join(PARTS)}; it has {', '.join(arrays)}")
    top_k = int(arrays["top_k"]) if "top_k" in arrays and arrays["top_k"].size == 1 else 0
    return LoadWindow.of(arrays[found[0]], top_k)


def write_load(file: BinaryIO, window: LoadWindow) -> None:
    """Counts as whole tokens, in the smallest type that holds them."""
    counts = np.rint(window.counts).astype(np.uint64)
    np.savez_compressed(file, counts=counts.astype(np.min_scalar_type(counts.max())), top_k=np.int64(window.top_k))


def read_placement(file: BinaryIO) -> Placement:
    """A placement written by ``write_placement``."""
    arrays = _arrays(file, {"slots", "experts"})
    if set(arrays) != {"slots", "experts"} or arrays["experts"].size != 1:
        raise Unplannable("the archive is no placement: it must hold 'slots' [layers, npus, slots] and 'experts'")
    return Placement.of(arrays["slots"], int(arrays["experts"]))


def write_placement(file: BinaryIO, placement: Placement) -> None:
    """Slots and the number of experts."""
    np.savez_compressed(file, slots=placement.slots, experts=np.int64(placement.experts))


def _arrays(file: BinaryIO, wanted: set[str]) -> Mapping[str, NDArray[np.generic]]:
    try:
        with zipfile.ZipFile(file) as archive:
            names = [name for name in archive.namelist() if name.removesuffix(".npy") in wanted]
            return {name.removesuffix(".npy"): _array(archive, name) for name in names}
    except (zipfile.BadZipFile, ValueError, EOFError, OSError, KeyError) as error:
        if isinstance(error, Unplannable):
            raise
        raise Unplannable(f"this is no readable NumPy archive: {error}") from error


def _array(archive: zipfile.ZipFile, name: str) -> NDArray[np.generic]:
    with archive.open(name) as member:
        version = npy.read_magic(member)
        header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = header(member)
        if int(np.prod(shape, dtype=object)) > MAX_CELLS or dtype.kind not in "iuf":
            raise Unplannable(f"array {name} is {dtype} {shape}: too large, or not numbers")
    with archive.open(name) as member:
        return np.asarray(npy.read_array(member, allow_pickle=False))
