"""Recordings of SGLang's expert distribution recorder, mode ``stat``; and placements that SGLang starts with.

A dump is a dictionary with ``logical_count`` [forward passes, layers, experts], saved by torch; SGLang also reads and
writes it as JSON. The recorder's buffer is a ring: passes that were never recorded are zero and are left out. Layers
without experts are zero throughout and stay, as idle layers, so that layer numbers are the model's.
"""

import json
from typing import Any, BinaryIO

import numpy as np

from eplb.errors import Unplannable
from eplb.load import LoadWindow
from eplb.placement import EMPTY, Placement
from eplb.traces import torchfile

MAX_JSON = 2**28  # bytes


def read(file: BinaryIO, top_k: int = 0) -> LoadWindow:
    """A dump, .pt or JSON; told apart by their first byte."""
    start = file.read(1)
    file.seek(0)
    dump = torchfile.read(file) if start == b"P" else _json(file)
    if not isinstance(dump, dict) or "logical_count" not in dump:
        hint = ": record in mode 'stat', not 'per_token'" if isinstance(dump, dict) and "records" in dump else ""
        raise Unplannable(f"the file has no 'logical_count'{hint}")
    try:
        counts = np.asarray(dump["logical_count"])
    except ValueError as error:
        raise Unplannable(f"'logical_count' is not a table of numbers: {error}") from error
    window = LoadWindow.of(counts[None] if counts.ndim == 2 else counts, top_k)
    used = window.counts.any((1, 2))
    if not used.any():
        raise Unplannable("the recording is empty: no forward pass routed a token")
    return LoadWindow(window.counts[used], top_k)


def write(file: BinaryIO, window: LoadWindow) -> None:
    """A dump as the recorder's, .pt."""
    torchfile.write(file, "logical_count", np.rint(window.counts).astype(np.int64), rank=0)


def write_placement(file: BinaryIO, placement: Placement) -> None:
    """JSON for ``--init-expert-location``; SGLang wants every slot filled."""
    if (placement.slots == EMPTY).any():
        raise Unplannable("SGLang wants an expert in every slot; some are empty")
    physical = placement.slots.reshape(placement.layers, -1).tolist()
    file.write(json.dumps({"physical_to_logical_map": physical}).encode())


def read_placement(file: BinaryIO, npus: int) -> Placement:
    """What ``--init-expert-location`` takes, on so many NPUs."""
    document = _json(file)
    try:
        physical = np.asarray(document["physical_to_logical_map"], dtype=np.int32)
        slots = physical.reshape(len(physical), npus, -1)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Unplannable(
            f"the file has no 'physical_to_logical_map' [layers][slots] for {npus} NPUs: {error}"
        ) from error
    return Placement.of(slots, int(slots.max(initial=0)) + 1)


def _json(file: BinaryIO) -> Any:
    text = file.read(MAX_JSON + 1)
    if len(text) > MAX_JSON:
        raise Unplannable(f"the JSON is larger than {MAX_JSON} bytes; use the .pt that SGLang writes")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unplannable(f"this is neither a .pt file nor JSON: {error}") from error
