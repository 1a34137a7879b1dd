"""Weights of a running engine, copied over XCCL: the same bytes, no file left, and the disk when it fails."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

import flowserve.transfer.fork as fork
from flowserve.transfer.fork import NoSuchPart, Receiver, WeightDonor, copied
from flowserve.wire import Donor
from flowserve.wire_fork import WeightPull
from xccl import Endpoint, Layout, Network

LAYOUT = Layout(max_peers=2, max_tokens=2, hidden=2, top_k=1)
SIZES = {"a.safetensors": 100_000, "b.safetensors": 7}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    path.mkdir()
    rng = np.random.default_rng(0)
    for name, size in SIZES.items():
        (path / name).write_bytes(rng.bytes(size))
    (path / "config.json").write_text("{}")
    return path


@pytest.fixture
async def donor(tmp_path: Path, directory: Path) -> AsyncIterator[WeightDonor]:
    with Endpoint.create(tmp_path / "shm", "donor", LAYOUT) as endpoint:
        yield WeightDonor(directory, endpoint, timeout=5)


@pytest.fixture
async def address(donor: WeightDonor) -> AsyncIterator[Donor]:
    async def offer(_request: web.Request) -> web.Response:
        return web.Response(text=donor.offer().model_dump_json())

    async def pull(request: web.Request) -> web.Response:
        donor.send(WeightPull.model_validate_json(await request.read()))
        return web.Response(status=202)

    app = web.Application()
    app.router.add_get("/v1/weights", offer)
    app.router.add_post("/v1/weights/pull", pull)
    async with TestServer(app) as server:
        assert server.port is not None
        yield Donor(host="127.0.0.1", control_port=server.port)


@pytest.fixture
def receiver(tmp_path: Path) -> Receiver:
    network = Network(b"s" * 32, "127.0.0.1", 0)
    return Receiver("127.0.0.1", "token", str(tmp_path / "shm"), LAYOUT, network, 5)


async def test_every_file_arrives_as_it_is_in_parts_and_leaves_nothing(
    address: Donor, receiver: Receiver, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork, "PART_BYTES", 30_000)
    async with copied(address, receiver) as files:
        assert {name: path.read_bytes() for name, path in files.items()} == {
            name: (directory / name).read_bytes() for name in SIZES
        }
        descriptors = [int(path.name) for path in files.values()]
    for descriptor in descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
    assert not [name for name in os.listdir(receiver.shm) if not name.startswith("donor")]


async def test_without_the_donor_there_are_no_files_and_no_failure(receiver: Receiver) -> None:
    async with copied(Donor(host="127.0.0.1", control_port=1), receiver) as files:
        assert files == {}


async def test_a_donor_that_stops_in_the_middle_gives_nothing(
    address: Donor, receiver: Receiver, donor: WeightDonor, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = donor.send

    def send(wish: WeightPull) -> None:
        if wish.file == "b.safetensors":
            raise NoSuchPart("gone")
        begin(wish)

    monkeypatch.setattr(donor, "send", send)
    async with copied(address, receiver) as files:
        assert files == {}, "half a checkpoint is none"


@pytest.mark.parametrize(
    ("file", "offset", "length"),
    [("b.safetensors", 0, 8), ("b.safetensors", 7, 1), ("none.safetensors", 0, 1)],
)
async def test_only_what_is_there_is_sent(donor: WeightDonor, file: str, offset: int, length: int) -> None:
    wish = WeightPull(host="h", incarnation="i", fabric_uri="u", event=1, file=file, offset=offset, length=length)
    with pytest.raises(NoSuchPart):
        donor.send(wish)


@pytest.mark.parametrize("file", ["../config.json", "a/b.safetensors", "/etc/passwd", "config.json"])
def test_a_pull_cannot_name_any_other_file(file: str) -> None:
    with pytest.raises(ValueError, match="file"):
        WeightPull(host="h", incarnation="i", fabric_uri="u", event=1, file=file, offset=0, length=1)
