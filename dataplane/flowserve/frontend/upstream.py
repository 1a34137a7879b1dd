"""Calls to TE-shells and engines, over one keep-alive session. All of them carry the control token.

Two ways to fail. ``UpstreamLost``: nobody answered, or answered "not now"; the same call elsewhere or later may work.
``UpstreamRefused``: the peer understood the request and will never take it; repeating it is pointless. Leaving
``generate`` early closes its connection, which is how an engine learns that the request is cancelled.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final, TypeVar

import aiohttp
import structlog
from pydantic import ValidationError
from yarl import URL

from flowserve.frontend.relay import StreamCorrupted, TokenRelay
from flowserve.wire import (
    DispatchReply,
    DispatchRequest,
    GenerateRequest,
    PrefillReply,
    Refusal,
    Target,
    TokenEvent,
    TransferTicket,
    WireModel,
)

Reply = TypeVar("Reply", bound=WireModel)

log = structlog.get_logger()

_MAX_REPLY_BYTES: Final = 65_536


class UpstreamLost(Exception):
    """A peer is gone, silent or has no room; another attempt may succeed."""


class UpstreamRefused(Exception):
    """A peer rejects this request for good, or breaks the protocol."""


@dataclass(frozen=True)
class Timeouts:
    """Seconds after which a peer counts as lost."""

    connect: float = 2.0
    dispatch: float = 3.0
    prefill: float = 120.0
    silence: float = 60.0  # between two events of a stream: an instance may be healing meanwhile
    drop: float = 3.0


class Upstream:
    """The HTTP client of one frontend; create it inside the event loop, close it at the end."""

    def __init__(self, control_token: str, timeouts: Timeouts | None = None) -> None:
        self._timeouts = timeouts or Timeouts()
        self._session = aiohttp.ClientSession(
            headers={"authorization": f"Bearer {control_token}", "content-type": "application/json"},
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        self._drops: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        """Finish the drops under way, then close all connections."""
        await asyncio.gather(*self._drops, return_exceptions=True)
        await self._session.close()

    async def dispatch(self, target: Target, request_id: str, tokens: int) -> DispatchReply:
        """Ask an instance's TE-shell for the DP group that shall take a request of ``tokens`` positions."""
        url = _url(target.shell_host, target.shell_port, "/v1/dispatch")
        request = DispatchRequest(request_id=request_id, tokens=tokens)
        return await self._call(url, request, DispatchReply, self._timeouts.dispatch)

    async def prefill(self, group: DispatchReply, request: GenerateRequest) -> PrefillReply:
        """Run the prompt through a prefill engine: the first token and the ticket of its KV."""
        url = _url(group.host, group.api_port, "/v1/prefill")
        return await self._call(url, request, PrefillReply, self._timeouts.prefill)

    async def generate(self, group: DispatchReply, request: GenerateRequest) -> AsyncGenerator[TokenEvent, None]:
        """Stream an answer from a decode engine; ends after its last event, raises if there is none."""
        url = _url(group.host, group.api_port, "/v1/generate")
        timeout = aiohttp.ClientTimeout(sock_connect=self._timeouts.connect, sock_read=self._timeouts.silence)
        relay = TokenRelay()
        try:
            async with self._session.post(url, data=request.model_dump_json(), timeout=timeout) as response:
                await _check(response)
                async for chunk in response.content.iter_any():
                    for event in relay.feed(chunk):
                        yield event
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            if not relay.finished:
                raise _lost(url, error) from error
        except StreamCorrupted as error:
            raise UpstreamRefused(f"{url}: {error}") from error
        if not relay.finished:
            raise UpstreamLost(f"{url}: the stream ended without its last event")

    def drop(self, ticket: TransferTicket) -> None:
        """Tell a prefill engine, in the background, that nobody will pull this KV. Best effort: tickets also age."""
        task = asyncio.create_task(self._drop(ticket))
        self._drops.add(task)
        task.add_done_callback(self._drops.discard)

    async def _drop(self, ticket: TransferTicket) -> None:
        url = _url(ticket.host, ticket.control_port, f"/v1/transfers/{ticket.id}")
        try:
            async with self._session.delete(url, timeout=self._total(self._timeouts.drop)):
                pass
        except (aiohttp.ClientError, OSError) as error:
            log.info("ticket not dropped", url=str(url), error=_reason(error))

    async def _call(self, url: URL, message: WireModel, reply: type[Reply], seconds: float) -> Reply:
        timeout = self._total(seconds)
        try:
            async with self._session.post(url, data=message.model_dump_json(), timeout=timeout) as response:
                await _check(response)
                return reply.model_validate_json(await _read(response))
        except (aiohttp.ClientError, OSError) as error:
            raise _lost(url, error) from error
        except ValidationError as error:
            raise UpstreamRefused(f"{url}: the reply is no {reply.__name__}") from error

    def _total(self, seconds: float) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(total=seconds, sock_connect=self._timeouts.connect)


def _url(host: str, port: int, path: str) -> URL:
    return URL.build(scheme="http", host=host, port=port, path=path)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The body, cut at a size that no valid reply has."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _MAX_REPLY_BYTES:
            break
    return bytes(body)


async def _check(response: aiohttp.ClientResponse) -> None:
    if response.status < 300:
        return
    try:
        refusal = Refusal.model_validate_json(await _read(response))
    except ValidationError:
        refusal = Refusal(error="no Refusal in the body", retryable=response.status >= 500)
    message = f"{response.url}: HTTP {response.status}: {refusal.error}"
    raise UpstreamLost(message) if refusal.retryable else UpstreamRefused(message)


def _lost(url: URL, error: Exception) -> UpstreamLost:
    return UpstreamLost(f"{url}: {_reason(error)}")


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
