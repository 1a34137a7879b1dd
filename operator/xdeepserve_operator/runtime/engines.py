"""The operator's side of the control routes: to TE-shells and frontends, and to engines that wait for an assignment.

No answer is an answer: a process that is starting, gone or slow gives ``None`` or ``False`` within the timeout, and
the reconciler comes back. A refusal of an older epoch is not an error either, the next status shows the newer one.
A TE-shell whose status did not change says so without repeating it; the answer is then the very same object as before.
One that nobody has asked for a while is forgotten.
"""

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

import aiohttp
from pydantic import ValidationError

from flowserve.wire import EngineConfig, FrontendStatus, Membership, Roster, Routes, ShellStatus, WireModel
from xdeepserve_operator.api.names import PORT_CONTROL
from xdeepserve_operator.planner.recent import Recent
from xdeepserve_operator.runtime.kube import UNREACHABLE

logger = logging.getLogger(__name__)
REMEMBERED_SECONDS = 30.0
TIMEOUT = aiohttp.ClientTimeout(total=2.0, sock_connect=1.0)
ANSWER_LIMIT = 4 * 1024 * 1024  # bytes; a status of 1 024 ranks is about 0.6 MB


class _Told(NamedTuple):
    """A TE-shell's status and its ETag."""

    etag: str
    status: ShellStatus


class EngineClient:
    """Implements the controllers' ``Engines``; ``host`` is a pod IP."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        port: int = PORT_CONTROL,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session, self._port, self._monotonic = session, port, monotonic
        self._told = Recent[str, _Told](REMEMBERED_SECONDS)  # by host

    async def shell_status(self, host: str, token: str) -> ShellStatus | None:
        """What the TE-shell says, or None when it does not answer."""
        known = self._told.get(host, self._monotonic())
        try:
            headers = _bearer(token) | ({"If-None-Match": known.etag} if known is not None else {})
            async with self._session.get(self._url(host, "/v1/status"), headers=headers, timeout=TIMEOUT) as reply:
                if reply.status == 304 and known is not None:
                    return self._remember(host, known.etag, known.status)
                if reply.status != 200:
                    return None
                status = ShellStatus.model_validate_json(await _bounded(reply))
        except (*UNREACHABLE, ValidationError) as error:
            logger.debug("no status from %s: %s", host, error)
            return None
        return self._remember(host, reply.headers.get("ETag", ""), status)

    def _remember(self, host: str, etag: str, status: ShellStatus) -> ShellStatus:
        if etag:
            self._told.put(host, _Told(etag, status), self._monotonic())
        return status

    async def frontend_status(self, host: str, token: str) -> FrontendStatus | None:
        """What the frontend says, or None when it does not answer."""
        answer = await self.get(host, token, "/v1/status")
        try:
            return None if answer is None else FrontendStatus.model_validate_json(answer)
        except ValidationError as error:
            logger.debug("no status from %s: %s", host, error)
            return None

    async def engine_metrics(self, host: str, token: str) -> str | None:
        """An engine's figures in Prometheus text, or None when it does not answer."""
        answer = await self.get(host, token, "/metrics")
        return None if answer is None else answer.decode(errors="replace")

    async def put_roster(self, host: str, token: str, roster: Roster) -> bool:
        """Tells a TE-shell whom to listen to; True when it took it."""
        return await self.put(host, token, "/v1/roster", roster)

    async def put_membership(self, host: str, token: str, membership: Membership) -> bool:
        """Gives a TE-shell the membership to spread; True when it took it."""
        return await self.put(host, token, "/v1/membership", membership)

    async def put_assignment(self, host: str, token: str, config: EngineConfig) -> bool:
        """Tells a warm engine which DP group it is; True when it is that now."""
        return await self.put(host, token, "/v1/assignment", config)

    async def put_routes(self, host: str, token: str, routes: Routes) -> bool:
        """Tells a frontend where instances are; True when it took it."""
        return await self.put(host, token, "/v1/routes", routes)

    async def get(self, host: str, token: str, path: str) -> bytes | None:
        """What is answered there with 200; None for any other answer, and for none."""
        try:
            async with self._session.get(self._url(host, path), headers=_bearer(token), timeout=TIMEOUT) as reply:
                return await _bounded(reply) if reply.status == 200 else None
        except UNREACHABLE as error:
            logger.debug("no answer from %s to %s: %s", host, path, error)
            return None

    async def delete(self, host: str, token: str, path: str) -> bool:
        """Whether it was done."""
        try:
            async with self._session.delete(self._url(host, path), headers=_bearer(token), timeout=TIMEOUT) as reply:
                return reply.status < 400
        except UNREACHABLE as error:
            logger.debug("%s not deleted at %s: %s", path, host, error)
            return False

    async def put(self, host: str, token: str, path: str, message: WireModel) -> bool:
        """Whether the message was taken."""
        body = message.model_dump_json().encode()
        headers = _bearer(token) | {"Content-Type": "application/json"}
        try:
            async with self._session.put(self._url(host, path), data=body, headers=headers, timeout=TIMEOUT) as reply:
                if reply.status >= 400:
                    logger.info("%s refused %s: %s %s", host, path, reply.status, (await _bounded(reply))[:300])
                return reply.status < 400
        except UNREACHABLE as error:
            logger.debug("%s not sent to %s: %s", path, host, error)
            return False

    def _url(self, host: str, path: str) -> str:
        address = f"[{host}]" if ":" in host else host
        return f"http://{address}:{self._port}{path}"


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    chunks = bytearray()
    async for chunk in response.content.iter_any():
        chunks += chunk
        if len(chunks) > ANSWER_LIMIT:
            raise aiohttp.ClientPayloadError(f"answer of {response.url} is larger than {ANSWER_LIMIT} bytes")
    return bytes(chunks)
