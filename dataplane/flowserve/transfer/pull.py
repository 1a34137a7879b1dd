"""The decode side of a transfer: asks a prefill engine for the KV of a ticket and receives it.

Pulls from one prefill engine run one after the other. One that fails for whatever reason (the engine is gone or was
restarted, the ticket has expired, the link is too slow) fails alone, and may be tried again with a new prefill.
A pull whose request was cancelled runs to its end, so that the ring stays in order.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import aiohttp
import numpy as np

from flowserve.model import FloatArray
from flowserve.transfer.lines import Lines
from flowserve.wire import PullRequest, TransferTicket
from xccl import Endpoint, XcclError, arun


@dataclass(frozen=True)
class Pulled:
    """A completion: the KV f32[layers, tokens, width], or the error that a client may be told."""

    key: int
    rows: FloatArray | str


class PullFailed(Exception):
    """The prefill engine has no KV for this ticket, or it did not arrive whole."""


class Puller:
    """Every ``pull`` ends in ``completions``; it never blocks the caller and never raises."""

    def __init__(self, endpoint: Endpoint, http: aiohttp.ClientSession, host: str, timeout: float) -> None:
        self.completions: asyncio.Queue[Pulled] = asyncio.Queue()
        self._endpoint = endpoint
        self._http = http
        self._host = host
        self._timeout = timeout
        self._lines = Lines(endpoint)
        self._tasks: set[asyncio.Task[None]] = set()

    def pull(self, key: int, ticket: TransferTicket, shape: tuple[int, int, int]) -> None:
        """Fetches the KV of ``ticket``, f32 of ``shape``, for the sequence ``key``."""
        task = asyncio.create_task(self._pull(key, ticket, shape))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pull(self, key: int, ticket: TransferTicket, shape: tuple[int, int, int]) -> None:
        result: FloatArray | str
        try:
            async with self._lines.to(ticket.incarnation, ticket.fabric_uri) as line:
                event = line.next_event()
                await self._ask(ticket, event, line.number)
                channel = await line.channel(self._timeout)
                result = np.empty(shape, np.float32)
                received = await arun(channel.receive(result, event=event), timeout=self._timeout)
                if received != result.nbytes:
                    raise PullFailed(f"{received} bytes of KV arrived, {result.nbytes} were expected")
        except (PullFailed, XcclError, ValueError, aiohttp.ClientError, OSError) as error:
            result = f"KV of ticket {ticket.id} cannot be had: {str(error) or type(error).__name__}"
        self.completions.put_nowait(Pulled(key, result))

    async def _ask(self, ticket: TransferTicket, event: int, line: int) -> None:
        wish = PullRequest(
            host=self._host,
            incarnation=self._endpoint.incarnation,
            fabric_uri=self._endpoint.uri,
            event=event,
            line=line,
        )
        url = f"http://{ticket.host}:{ticket.control_port}/v1/transfers/{ticket.id}"
        async with self._http.post(f"{url}/pull", data=wish.model_dump_json()) as response:
            if response.status != 202:
                answer = (await response.content.read(512)).decode(errors="replace")
                raise PullFailed(f"HTTP {response.status}: {answer}")
