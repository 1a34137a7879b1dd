"""One engine's life: it answers on its control port at once, loads its model, then serves one epoch after the other.

All of it runs in one event loop, the forward pass too: an engine that hangs does not answer ``/v1/status`` either, so
that a hang is heard as silence.
"""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import structlog

from flowserve import garbage
from flowserve.control import listening
from flowserve.engine import control_http
from flowserve.engine.assembly import TRANSFER_SECONDS, Parts, assembled, network_of, shm_directory
from flowserve.engine.expert_plane import ExpertPlane
from flowserve.engine.iteration import Tally
from flowserve.engine.loading import Runtime, layout_in
from flowserve.engine.prefill import Prefill
from flowserve.engine.state import Lifecycle
from flowserve.epoch import Refused
from flowserve.output.link import Cancel, Failed, Hopeless, Link, Listening, Submit
from flowserve.process import Unusable, together
from flowserve.source import model_directory
from flowserve.transfer.fork import Receiver, WeightDonor, copied
from flowserve.wire import EngineConfig, EngineStatus, ExpertState, Membership

log = structlog.get_logger()


class OutputLost(Exception):
    """The output process is gone, and with it every stream."""


class Engine:
    """One DP group. ``run`` is its whole life."""

    def __init__(self, config: EngineConfig, token: str, link: Link) -> None:
        self._config = config
        self._token = token
        self._link = link
        self._life = Lifecycle(config.instance, secrets.token_hex(8), config.limits.max_ranks)
        self._tally = Tally()
        self._output_listens = asyncio.Event()
        self._parts: Parts | None = None  # there are none while the model is loaded

    async def run(self) -> None:
        """Until cancelled. Raises Unusable, OutputLost, or whatever else it cannot go on after."""
        app = control_http.application(self._token, self._config.model_name, self._tally, self)
        async with listening(app, self._config.host, self._config.control_port):
            await together(self._serve_output(), self._work())

    @property
    def prefill(self) -> Prefill | None:
        """The prefill role; None while the model is loaded, and for ever on a decode engine."""
        role = self._parts.role if self._parts else None
        return role if isinstance(role, Prefill) else None

    def status(self) -> EngineStatus:
        """What the engine says of itself."""
        parts = self._parts
        return EngineStatus(
            name=self._config.name,
            incarnation=self._life.incarnation,
            fabric_uri=parts.endpoint.uri if parts else "",
            state=self._life.state,
            epoch=self._life.epoch,
            error=self._life.error,
            running=parts.scheduler.running if parts else 0,
            waiting=parts.scheduler.waiting if parts else 0,
            kv_usage=parts.scheduler.usage if parts else 0.0,
            iterations=self._tally.iterations,
            experts=parts.plane.state() if parts else ExpertState(),
        )

    @property
    def experts(self) -> ExpertPlane:
        """Where routed experts are. Raises Refused while the model is loaded."""
        return self._loaded.plane

    @property
    def weights(self) -> WeightDonor:
        """What engines that start may copy. Raises Refused while the model is loaded."""
        return self._loaded.weights

    def offer(self, membership: Membership) -> None:
        """Follows a membership if it is new. Raises Refused."""
        self._loaded.epochs.offer(membership)

    @property
    def _loaded(self) -> Parts:
        if self._parts is None:
            raise Refused("the engine is still loading its model; wait until it reports state Waiting")
        return self._parts

    async def _serve_output(self) -> None:
        async for message in self._link.messages():
            match message:
                case Listening():
                    self._output_listens.set()
                case Hopeless(reason=reason, message=text):
                    raise Unusable(reason, text)
                case Submit(key=key, request=request):
                    if self._parts is None:
                        self._link.send(Failed(key=key, error="the engine is loading its model", retryable=True))
                    else:
                        self._parts.intake.submit(key, request)
                case Cancel(key=key):
                    if self._parts is not None:
                        self._parts.intake.cancel(key)
                case _:
                    raise OutputLost(f"the output process said something out of turn: {message.kind}")
        raise OutputLost("the output process has ended")

    async def _work(self) -> None:
        config = self._config
        runtime = await self._load(model_directory(config.model_uri))
        async with assembled(config, self._token, self._life, runtime, self._tally, self._link.send) as parts:
            await self._output_listens.wait()
            self._parts = parts
            garbage.settle()
            self._life.loaded()
            log.info("loaded", model=config.model_uri, incarnation=self._life.incarnation)
            await together(parts.epochs.run(), parts.epochs.listen(), parts.role.settle())

    async def _load(self, directory: Path) -> Runtime:
        """The model, from the donor's memory if there is a donor, else from the disk. Raises Unusable."""
        config = self._config
        if config.donor is None:
            return await asyncio.to_thread(Runtime, directory, config.limits)
        receiver = Receiver(
            config.host,
            self._token,
            shm_directory(),
            layout_in(directory, config.limits),
            network_of(config, self._token),
            TRANSFER_SECONDS,
        )
        async with copied(config.donor, receiver) as files:
            return await asyncio.to_thread(Runtime, directory, config.limits, files)
