"""Writes that must arrive: repeated until the API server has taken or refused them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from xdeepserve_operator.runtime.kube import UNREACHABLE, AlreadyExists, ApiError, Conflict, NotFound

logger = logging.getLogger(__name__)
FIRST_WAIT_S, LAST_WAIT_S = 0.1, 5.0


def _passing(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    return not isinstance(error, ApiError) or isinstance(error, Conflict) or error.status == 429 or error.status >= 500


async def insist(
    call: Callable[[], Awaitable[object]], what: str, *, pointless: Callable[[], bool] = lambda: False
) -> bool:
    """Makes a call until it is answered, or until it is `pointless()` to go on.

    False if the call was not taken: the object is gone, or there already, or the call was refused (logged).
    """
    wait = FIRST_WAIT_S
    while not pointless():
        try:
            await call()
            return True
        except (NotFound, AlreadyExists):
            return False
        except (ApiError, *UNREACHABLE) as error:
            if not _passing(error):
                logger.error("%s was refused: %s", what, error)
                return False
            logger.info("%s: %s; again in %.1f s", what, error, wait)
        await asyncio.sleep(wait)
        wait = min(2 * wait, LAST_WAIT_S)
    return False
