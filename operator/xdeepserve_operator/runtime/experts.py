"""The operator's side of the routes of ``flowserve.wire_experts``, to TE-shells; no answer is None or False."""

import logging
from typing import TypeVar

from pydantic import ValidationError

from flowserve.wire import WireModel
from flowserve.wire_experts import ExpertHistory, ExpertOrder, ExpertTable, ExpertWatch
from xdeepserve_operator.runtime.engines import EngineClient

logger = logging.getLogger(__name__)
M = TypeVar("M", bound=WireModel)


class ExpertClient:
    """Implements the controllers' ``ExpertRoutes``; ``host`` is the IP of a TE-shell's pod."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client

    async def watch(self, host: str, token: str, watch: ExpertWatch) -> bool:
        """Says how to count; True when the shell took it."""
        return await self._client.put(host, token, "/v1/experts/watch", watch)

    async def history(self, host: str, token: str, after: int) -> ExpertHistory | None:
        """What was counted after that slice."""
        return _parsed(ExpertHistory, await self._client.get(host, token, f"/v1/experts/load?after={after}"))

    async def table(self, host: str, token: str) -> ExpertTable | None:
        """The placement in force."""
        return _parsed(ExpertTable, await self._client.get(host, token, "/v1/experts/placement"))

    async def order(self, host: str, token: str, order: ExpertOrder) -> bool:
        """Gives the shell a change to spread; True when it took it."""
        return await self._client.put(host, token, "/v1/experts/placement", order)

    async def call_off(self, host: str, token: str, version: int) -> bool:
        """Takes a change back; True when the shell took that."""
        return await self._client.delete(host, token, f"/v1/experts/placement/{version}")


def _parsed(kind: type[M], answer: bytes | None) -> M | None:
    if answer is None:
        return None
    try:
        return kind.model_validate_json(answer)
    except ValidationError as error:
        logger.warning(
            "an answer is no %s: %s", kind.__name__, error.errors(include_input=False, include_url=False)[:3]
        )
        return None
