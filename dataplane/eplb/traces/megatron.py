"""Router traces of Megatron-LM (``--moe-routing-trace-path``): one JSON record a line, a file a rank.

A record is ``{"step", "stage", "block", "layer", "rank", "num_tokens", "topk", "top_indices": [[expert, ...], ...]}``,
with ``mtp_idx`` for a multi-token-prediction layer. Steps become slices, ranks are added up, layers are those that
occur, main block first. Files are read line by line; a line or a table that is too large is refused.
"""

import json
from collections.abc import Iterable
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from eplb.errors import Unplannable
from eplb.load import MAX_CELLS, LoadWindow

MAX_LINE = 2**26  # bytes
MAX_EXPERTS = 2**16

Place = tuple[int, int, int]  # 0 for the main block, 1 for MTP; index of the MTP layer; layer


def read(files: Iterable[BinaryIO], experts: int = 0) -> LoadWindow:
    """The files of all ranks; ``experts``: how many there are, 0 for the highest id seen plus one."""
    counts: dict[tuple[int, Place], NDArray[np.int64]] = {}
    top_k = 0
    for number, file in enumerate(files):
        for line in iter(lambda file=file: file.readline(MAX_LINE + 1), b""):  # type: ignore[misc]
            if not line.strip():
                continue
            step, place, ids = _record(line, number, len(counts))
            top_k = max(top_k, ids.shape[1])
            found = np.bincount(ids.ravel())
            known = counts.get((step, place))
            counts[step, place] = found if known is None else _sum(known, found)
    return _window(counts, top_k, experts)


def write(file: BinaryIO, window: LoadWindow) -> None:
    """One record a slice and layer, all as rank 0; Unplannable if no gate could have produced the counts."""
    if window.top_k < 1:
        raise Unplannable("a router trace needs top_k, the experts a token visits")
    for step, layers in enumerate(np.rint(window.counts).astype(np.int64)):
        for layer, counts in enumerate(layers):
            tokens, odd = divmod(int(counts.sum()), window.top_k)
            if odd or counts.max() > tokens:
                raise Unplannable(f"slice {step}, layer {layer}: no {window.top_k} different experts for each token")
            # Experts in order, dealt out column by column: an expert's tokens are consecutive, so all different.
            indices = np.repeat(np.arange(len(counts)), counts).reshape(window.top_k, tokens).T
            record = {
                "step": step,
                "stage": "pre_dispatch",
                "block": "decoder",
                "layer": layer,
                "rank": 0,
                "num_tokens": tokens,
                "topk": window.top_k,
                "top_indices": indices.tolist(),
            }
            file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")


def _record(line: bytes, file: int, read_before: int) -> tuple[int, Place, NDArray[np.int64]]:
    if len(line) > MAX_LINE:
        raise Unplannable(f"file {file}: a line is longer than {MAX_LINE} bytes")
    try:
        record: dict[str, Any] = json.loads(line)
        mtp = record.get("mtp_idx")
        place = (int(mtp is not None), int(mtp or 0), int(record["layer"]))
        ids = np.asarray(record["top_indices"], dtype=np.int64)
        step = int(record["step"])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise Unplannable(
            f"file {file}, after {read_before} steps and layers: no record of a router: {error}"
        ) from error
    if ids.ndim != 2 or (ids.size and not 0 <= ids.min() <= ids.max() < MAX_EXPERTS):
        raise Unplannable(f"file {file}, step {step}, layer {place[2]}: top_indices must be expert ids [tokens, topk]")
    return step, place, ids


def _sum(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    size = max(len(one), len(other))
    return np.pad(one, (0, size - len(one))) + np.pad(other, (0, size - len(other)))


def _window(counts: dict[tuple[int, Place], NDArray[np.int64]], top_k: int, experts: int) -> LoadWindow:
    if not counts:
        raise Unplannable("the trace has no record")
    steps = {step: at for at, step in enumerate(sorted({step for step, _ in counts}))}
    places = {place: at for at, place in enumerate(sorted({place for _, place in counts}))}
    seen = max(len(row) for row in counts.values())
    if experts and seen > experts:
        raise Unplannable(f"the trace names expert {seen - 1}; there are {experts}, from 0")
    shape = (len(steps), len(places), experts or seen)
    if int(np.prod(shape, dtype=object)) > MAX_CELLS:
        raise Unplannable(f"a window of {shape} counts is too large; read fewer steps")
    window = np.zeros(shape)
    for (step, place), row in counts.items():
        window[steps[step], places[place], : len(row)] = row
    return LoadWindow.of(window, top_k)
