"""Requests on their way in and out of an engine: checked, queued, admitted, cancelled.

A request is taken as soon as the engine follows a membership, and held while a group is joined or broken. Whoever
frees blocks or makes a sequence ready calls ``changed``: it admits what fits now and wakes the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from flowserve.cache import SequenceKV
from flowserve.engine.role import NotNow, Refuse, Role
from flowserve.engine.scheduler import QueueFull, Scheduler, TooLarge
from flowserve.engine.sequence import Sequence
from flowserve.engine.state import Lifecycle
from flowserve.output.link import Failed, FromEngine
from flowserve.wire import GenerateRequest


class Intake:
    """``vocabulary`` and ``max_context`` are the model's: tokens, and positions of prompt and answer together."""

    def __init__(
        self,
        life: Lifecycle,
        scheduler: Scheduler,
        wake: asyncio.Event,
        send: Callable[[FromEngine], None],
        vocabulary: int,
        max_context: int,
    ) -> None:
        self.role: Role
        self._life = life
        self._scheduler = scheduler
        self._wake = wake
        self._send = send
        self._vocabulary = vocabulary
        self._max_context = max_context

    def submit(self, key: int, request: GenerateRequest) -> None:
        """Takes a request, or answers at once why not."""
        try:
            if not self._life.epoch:
                raise NotNow("the engine is in no group yet")
            self._check(request)
            self._scheduler.submit(Sequence(key, request, SequenceKV(self._scheduler.pool), self.role.room(request)))
        except (Refuse, TooLarge) as error:
            self._send(Failed(key=key, error=str(error), retryable=False))
        except (NotNow, QueueFull) as error:
            self._send(Failed(key=key, error=str(error), retryable=True))
        else:
            self.changed()

    def cancel(self, key: int) -> None:
        """Nobody wants the rest of a request."""
        self._scheduler.cancel(key)
        self.changed()

    def changed(self) -> None:
        """Admits what fits now, and wakes the loop."""
        self._scheduler.admit(self.role.enter)
        self._wake.set()

    def _check(self, request: GenerateRequest) -> None:
        if max(request.prompt) >= self._vocabulary or min(request.prompt) < 0:
            raise Refuse(f"the prompt has tokens outside 0..{self._vocabulary - 1}")
        if (positions := len(request.prompt) + request.max_tokens) > self._max_context:
            raise Refuse(f"prompt and answer take {positions} tokens, the context has {self._max_context}")
