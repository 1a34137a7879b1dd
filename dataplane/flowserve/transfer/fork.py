"""NPU fork: an engine starts with the weights of one that runs, copied over XCCL instead of read from a disk.

What is copied are the checkpoint's files as they are, from the donor's memory (it has them mapped) into memory of the
new engine that has no name and goes with it. So what is made of them is made as ever, with the same checks, and nothing
depends on which experts the donor holds. The donor serves on meanwhile: a part is sent in many small steps.
A copy that fails for whatever reason is no failure of the engine: it reads its checkpoint from the disk.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import numpy as np
import structlog
from pydantic import ValidationError

from flowserve.transfer.lines import Lines
from flowserve.wire import Donor
from flowserve.wire_fork import PART_BYTES, WeightFile, WeightOffer, WeightPull
from xccl import Endpoint, Layout, Network, XcclError, arun

log = structlog.get_logger()
OFFER_BYTES = 1 << 20
ASK_SECONDS = 10.0


class NoSuchPart(Exception):
    """There is no such file, or it ends before that."""


class ForkFailed(Exception):
    """The weights did not arrive."""


class WeightDonor:
    """Gives parts of the files in ``directory`` to engines that start."""

    def __init__(self, directory: Path, endpoint: Endpoint, timeout: float) -> None:
        self._directory, self._endpoint, self._timeout = directory, endpoint, timeout
        self._lines = Lines(endpoint)
        self._tasks: set[asyncio.Task[None]] = set()

    def offer(self) -> WeightOffer:
        """What there is. Raises NoSuchPart when there is nothing."""
        files = [WeightFile(name=path.name, size=path.stat().st_size) for path in self._files()]
        if not files:
            raise NoSuchPart(f"{self._directory} holds no tensors")
        return WeightOffer(
            incarnation=self._endpoint.incarnation, fabric_uri=self._endpoint.uri, files=tuple(sorted(files, key=_name))
        )

    def send(self, wish: WeightPull) -> None:
        """Begins to send a part. Raises NoSuchPart."""
        path = self._directory / wish.file
        if path not in self._files() or wish.offset + wish.length > path.stat().st_size:
            raise NoSuchPart(f"{wish.file} has no {wish.length} bytes at {wish.offset}")
        task = asyncio.create_task(self._send(path, wish))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, path: Path, wish: WeightPull) -> None:
        try:
            with path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            part = np.frombuffer(mapped, np.uint8, wish.length, wish.offset)
            async with self._lines.to(wish.incarnation, wish.fabric_uri, wish.line) as line:
                channel = await line.channel(self._timeout)
                await arun(channel.send(part, event=wish.event), timeout=self._timeout)
        except (XcclError, ValueError, OSError) as error:
            log.info("a part of the weights was not sent", file=wish.file, error=str(error) or type(error).__name__)

    def _files(self) -> list[Path]:
        return list(self._directory.glob("*.safetensors"))


@dataclass(frozen=True)
class Receiver:
    """Who asks: the address and the XCCL parts of an engine that starts."""

    host: str
    token: str
    shm: str
    layout: Layout
    network: Network
    timeout: float


@asynccontextmanager
async def copied(donor: Donor, receiver: Receiver) -> AsyncIterator[Mapping[str, Path]]:
    """Where the donor's files are in this process' memory, by name, while the context lasts; none if it failed.

    What is mapped from there stays when the context ends.
    """
    files: dict[str, int] = {}
    try:
        try:
            await _copy(donor, receiver, files)
        except (ForkFailed, XcclError, ValueError, OSError, aiohttp.ClientError, TimeoutError) as error:
            log.warning("weights are read from the disk", donor=donor.host, error=str(error) or repr(error))
            _close(files)
        yield {name: Path(f"/proc/self/fd/{descriptor}") for name, descriptor in files.items()}
    finally:
        _close(files)


async def _copy(donor: Donor, receiver: Receiver, files: dict[str, int]) -> None:
    url = f"http://{donor.host}:{donor.control_port}/v1/weights"
    headers = {"Authorization": f"Bearer {receiver.token}", "Content-Type": "application/json"}
    limit = aiohttp.ClientTimeout(total=ASK_SECONDS)
    with Endpoint.create(receiver.shm, secrets.token_hex(8), receiver.layout, network=receiver.network) as endpoint:
        async with aiohttp.ClientSession(headers=headers, timeout=limit) as http:
            offer = await _offer(http, url)
            lines = Lines(endpoint)
            for file in offer.files:
                files[file.name] = os.memfd_create(file.name)
                os.ftruncate(files[file.name], file.size)
                into = mmap.mmap(files[file.name], file.size)
                for offset in range(0, file.size, PART_BYTES):
                    part = np.frombuffer(into, np.uint8, min(PART_BYTES, file.size - offset), offset)
                    async with lines.to(offer.incarnation, offer.fabric_uri) as line:
                        wish = WeightPull(
                            host=receiver.host,
                            incarnation=endpoint.incarnation,
                            fabric_uri=endpoint.uri,
                            event=line.next_event(),
                            line=line.number,
                            file=file.name,
                            offset=offset,
                            length=len(part),
                        )
                        async with http.post(f"{url}/pull", data=wish.model_dump_json()) as answer:
                            if answer.status != 202:
                                raise ForkFailed(f"HTTP {answer.status} for {file.name} at {offset}")
                        channel = await line.channel(receiver.timeout)
                        received = await arun(channel.receive(part, event=wish.event), timeout=receiver.timeout)
                    if received != len(part):
                        raise ForkFailed(f"{received} bytes of {file.name} arrived, {len(part)} were asked for")


async def _offer(http: aiohttp.ClientSession, url: str) -> WeightOffer:
    async with http.get(url) as answer:
        body = await answer.content.read(OFFER_BYTES)
        if answer.status != 200:
            raise ForkFailed(f"HTTP {answer.status}: {body[:200].decode(errors='replace')}")
    try:
        return WeightOffer.model_validate_json(body)
    except ValidationError as error:
        raise ForkFailed("the donor's offer is no valid document") from error


def _close(files: dict[str, int]) -> None:
    while files:
        os.close(files.popitem()[1])


def _name(file: WeightFile) -> str:
    return file.name
