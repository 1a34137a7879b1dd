"""Segment files that are not what they should be are refused before they are mapped."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from xccl_world import SMALL, endpoints, peer_of

from xccl import BadSegment, Endpoint, Layout, Peer, PeerLost, run
from xccl.layout import (
    FIELD_BYTES,
    HEADER_BYTES,
    MAX_SEGMENT_BYTES,
    METADATA_BYTES,
    GroupMap,
    Kind,
    message_bytes,
    metadata_fields,
    push_bytes,
)
from xccl.shm import file_of


@pytest.fixture
def pair() -> Iterator[list[Endpoint]]:
    with endpoints(2) as made:
        yield made


def look_at(pair: list[Endpoint]) -> None:
    """Have the first endpoint map the second one's memory."""
    run(pair[0].connect(peer_of(pair[1]), "endpoint", HEADER_BYTES), timeout=1)


def patch(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def truncate(path: Path) -> None:
    os.truncate(path, 100)


def shorten(path: Path) -> None:
    os.truncate(path, HEADER_BYTES - 1)


def grow(path: Path) -> None:
    os.truncate(path, HEADER_BYTES + 1)


def replace_by_symlink(path: Path) -> None:
    path.rename(path.with_suffix(".hidden"))
    path.symlink_to(path.with_suffix(".hidden"))


def replace_by_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate, "100 bytes are too short"),
        (shorten, "4095 bytes, its header says 4096"),
        (grow, "4097 bytes, its header says 4096"),
        (lambda path: patch(path, 0, b"GARBAGE!"), "not a segment"),
        (lambda path: patch(path, 8, b"\x63"), "version 99 of the format"),
        (lambda path: patch(path, 16, b"\xff" * 8), "its header says 18446744073709551615"),
        (lambda path: patch(path, 48, b"\xff" * 8), "not UTF-8"),
        (lambda path: patch(path, 48, b"other"), "it calls itself other"),
        (replace_by_symlink, "cannot be opened"),
        (replace_by_fifo, "not a regular file"),
        (replace_by_directory, "cannot be opened"),
    ],
)
def test_a_hostile_file_is_refused(damage: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    made = [Endpoint.create(tmp_path, name, SMALL) for name in ("mine", "theirs")]
    damage(file_of(tmp_path, "theirs", "endpoint"))
    with pytest.raises(BadSegment, match=message):
        look_at(made)
    made[0].close()


def test_a_file_that_is_still_being_made_is_waited_for(pair: list[Endpoint]) -> None:
    for content in (b"", bytes(HEADER_BYTES)):
        file_of(pair[1].directory, pair[1].incarnation, "group-7").write_bytes(content)
        steps = pair[0].connect(peer_of(pair[1]), "group-7", SMALL.group_bytes)
        next(steps)
    file_of(pair[1].directory, pair[1].incarnation, "group-7").unlink()


@pytest.mark.parametrize(
    "uri",
    ["tcp://127.0.0.1:1/die-1", "shm:///etc/die-1", "shm://{d}/../die-1", "shm://{d}/die-0", "shm://host{d}/die-1"],
)
def test_a_uri_outside_the_common_directory_is_refused(pair: list[Endpoint], uri: str) -> None:
    peer = Peer(1, "die-1", uri.format(d=pair[0].directory))
    with pytest.raises(BadSegment, match=r"must see the same directory|is not the URI of"):
        run(pair[0].connect(peer, "endpoint", HEADER_BYTES), timeout=1)


@pytest.mark.parametrize("incarnation", ["", "a/b", "..", "a.b", "-a", "x" * 64])
def test_an_incarnation_is_a_plain_name(incarnation: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be 1 to 63"):
        Endpoint.create(tmp_path, incarnation, SMALL)


def test_an_incarnation_in_use_is_refused(pair: list[Endpoint]) -> None:
    with pytest.raises(FileExistsError):
        Endpoint.create(pair[0].directory, "die-0", SMALL)


def test_files_are_private_and_sparse(pair: list[Endpoint]) -> None:
    segment = pair[0].own("group-1", SMALL.group_bytes)
    status = segment.path.stat()
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_blocks * 512 <= HEADER_BYTES < status.st_size


def test_a_restarted_peer_is_another_one(pair: list[Endpoint]) -> None:
    old = peer_of(pair[1])
    pair[1].close()
    with Endpoint.create(pair[0].directory, "die-1-again", SMALL), pytest.raises(PeerLost, match="no endpoint at"):
        run(pair[0].connect(old, "endpoint", HEADER_BYTES), timeout=1)


def test_closing_twice_is_harmless(pair: list[Endpoint]) -> None:
    pair[0].close()
    pair[0].close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_peers": 0}, "max_peers is 0, must lie between 1 and 1024"),
        ({"ring_slots": 1}, "ring_slots is 1"),
        ({"slot_bytes": 100}, "multiple of 64"),
        ({"max_peers": 1024, "max_tokens": 65536, "hidden": 65536}, f"more than the {MAX_SEGMENT_BYTES} of a die"),
    ],
)
def test_a_layout_out_of_bounds_is_refused(change: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Layout(**{"max_peers": 2, "max_tokens": 8, "hidden": 8, "top_k": 2} | change)


def test_the_parts_of_a_group_segment_do_not_overlap() -> None:
    parts = GroupMap(SMALL)
    fields = [parts.field(kind, source, e) for kind in Kind for source in range(SMALL.max_peers) for e in (0, 1)]
    assert sorted(fields) == [HEADER_BYTES + 64 * i for i in range(len(fields))]
    rows, row = SMALL.rows, SMALL.row_bytes
    blocks = [(max(fields), 64)]
    blocks += [(parts.flags(e), SMALL.max_tokens * 8) for e in (0, 1)]
    blocks += [(parts.experts(e), rows * 4) for e in (0, 1)]
    blocks += [(parts.numbers(e), rows * 4) for e in (0, 1)]
    blocks += [(parts.scales(e), SMALL.max_tokens * 4) for e in (0, 1)]
    blocks += [(parts.tokens(e), SMALL.max_tokens * row) for e in (0, 1)]
    blocks += [(parts.returned(e), SMALL.max_peers * rows * row) for e in (0, 1)]
    blocks += [
        (parts.pushed(source, e), rows * message_bytes(row)) for e in (0, 1) for source in range(SMALL.max_peers)
    ]
    blocks += [(parts.combined(e), rows * row) for e in (0, 1)]
    for (begin, nbytes), (next_begin, _) in zip(blocks, [*blocks[1:], (SMALL.group_bytes, 0)], strict=True):
        assert begin + nbytes <= next_begin


def test_metadata_of_384_chips_fits_what_a_die_reserves() -> None:
    fields = metadata_fields(dies=768)
    assert fields == pytest.approx(74_000, rel=0.01)
    assert fields * FIELD_BYTES == pytest.approx(2.4e6, rel=0.02)
    assert fields * FIELD_BYTES < METADATA_BYTES


def test_push_buffers_of_320_ranks_take_what_the_paper_says() -> None:
    """Dispatch: 7168 B of INT8 and a slot of 512 B; combine: 7168 values of BF16. A die has one expert."""
    dispatch = push_bytes(ranks=320, batch=96, top_k=8, die_experts=1, message=message_bytes(7168))
    combine = push_bytes(ranks=320, batch=96, top_k=8, die_experts=1, message=2 * 7168)
    assert (dispatch, combine) == (225 * 2**20, 420 * 2**20)
