"""One engine, put together: which part knows which, and in what order they start and end.

    output process ==link==> Intake -> Scheduler <- Iterations <- Lockstep <- Epochs <- control port
                   <==link==          Role (Prefill or Decode) <-> transfers

All of it runs in one event loop, the forward pass too: an engine that hangs does not answer ``/v1/status`` either, so
that a hang is heard as silence.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from contextlib import AsyncExitStack

import aiohttp
import structlog

from flowserve.control import listening
from flowserve.engine import control_http
from flowserve.engine.decode import Decode
from flowserve.engine.epochs import Epochs
from flowserve.engine.intake import Intake
from flowserve.engine.iteration import Tally
from flowserve.engine.loading import Runtime
from flowserve.engine.prefill import Prefill
from flowserve.engine.role import Role
from flowserve.engine.scheduler import Scheduler
from flowserve.engine.state import Lifecycle
from flowserve.epoch import Refused
from flowserve.output.link import Cancel, Failed, Hopeless, Link, Listening, Submit
from flowserve.process import Unusable, together
from flowserve.source import model_directory
from flowserve.transfer.pull import Puller
from flowserve.transfer.push import Pusher
from flowserve.transfer.tickets import TicketBook
from flowserve.wire import EngineConfig, EngineStatus, Membership, TransferTicket
from xccl import Doorbell, Endpoint

SHM_VARIABLE = "XCCL_SHM_DIR"
WAITING_PER_PLACE = 16  # requests that may wait for each place in the batch
TICKETS = 256
TICKET_SECONDS = 30.0
TRANSFER_SECONDS = 30.0
ASK_SECONDS = 10.0  # a prefill engine answers between two chunks

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
        self._wake = asyncio.Event()
        self._tally = Tally()
        self._output_listens = asyncio.Event()
        self._endpoint: Endpoint | None = None
        self._scheduler: Scheduler | None = None
        self._intake: Intake | None = None
        self._epochs: Epochs | None = None
        self._prefill: Prefill | None = None

    async def run(self) -> None:
        """Until cancelled. Raises Unusable, OutputLost, or whatever else it cannot go on after."""
        app = control_http.application(
            self._token,
            self._config.model_name,
            self.status,
            self.offer,
            lambda: self._tally.tokens,
            lambda: self._prefill,
        )
        async with listening(app, self._config.host, self._config.control_port):
            await together(self._serve_output(), self._work())

    def status(self) -> EngineStatus:
        """What the engine says of itself."""
        scheduler = self._scheduler
        return EngineStatus(
            name=self._config.name,
            incarnation=self._life.incarnation,
            fabric_uri=self._endpoint.uri if self._endpoint else "",
            state=self._life.state,
            epoch=self._life.epoch,
            error=self._life.error,
            running=scheduler.running if scheduler else 0,
            waiting=scheduler.waiting if scheduler else 0,
            kv_usage=scheduler.pool.usage if scheduler else 0.0,
            iterations=self._tally.iterations,
        )

    def offer(self, membership: Membership) -> None:
        """Follows a membership if it is new. Raises Refused."""
        if self._epochs is None:
            raise Refused("the engine is still loading its model; wait until it reports state Waiting")
        self._epochs.offer(membership)

    async def _serve_output(self) -> None:
        async for message in self._link.messages():
            match message:
                case Listening():
                    self._output_listens.set()
                case Hopeless(reason=reason, message=text):
                    raise Unusable(reason, text)
                case Submit(key=key, request=request):
                    if self._intake is None:
                        self._link.send(Failed(key=key, error="the engine is loading its model", retryable=True))
                    else:
                        self._intake.submit(key, request)
                case Cancel(key=key):
                    if self._intake is not None:
                        self._intake.cancel(key)
                case _:
                    raise OutputLost(f"the output process said something out of turn: {message.kind}")
        raise OutputLost("the output process has ended")

    async def _work(self) -> None:
        config, limits = self._config, self._config.limits
        runtime = await asyncio.to_thread(Runtime, model_directory(config.model_uri), limits)
        directory = os.environ.get(SHM_VARIABLE) or "/dev/shm"
        async with AsyncExitStack() as stack:
            endpoint = stack.enter_context(Endpoint.create(directory, self._life.incarnation, runtime.layout))
            doorbell = stack.enter_context(Doorbell(config.host, config.doorbell_port))
            scheduler = Scheduler(runtime.pool, limits.max_batch, WAITING_PER_PLACE * limits.max_batch)
            intake = Intake(
                self._life, scheduler, self._wake, self._link.send, runtime.config.vocab_size, runtime.max_context
            )
            role: Role
            if config.role == "Prefill":
                role = self._prefill = self._prefill_role(runtime, scheduler, endpoint, intake)
            else:
                http = await stack.enter_async_context(
                    aiohttp.ClientSession(
                        headers={"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
                        timeout=aiohttp.ClientTimeout(total=ASK_SECONDS),
                    )
                )
                puller = Puller(endpoint, http, config.host, TRANSFER_SECONDS)
                role = Decode(runtime, scheduler, puller, self._link.send, intake.changed)
            intake.role = role
            epochs = Epochs(
                self._life,
                runtime,
                scheduler,
                role,
                endpoint,
                doorbell,
                self._wake,
                intake.changed,
                self._tally,
                limits.collective_timeout_seconds,
            )
            await self._output_listens.wait()
            self._endpoint, self._scheduler, self._intake, self._epochs = endpoint, scheduler, intake, epochs
            self._life.loaded()
            log.info("loaded", model=config.model_uri, incarnation=endpoint.incarnation)
            await together(epochs.run(), epochs.listen(), role.settle())

    def _prefill_role(self, runtime: Runtime, scheduler: Scheduler, endpoint: Endpoint, intake: Intake) -> Prefill:
        config = self._config
        origin = TransferTicket(
            id="none",
            host=config.host,
            control_port=config.control_port,
            incarnation=endpoint.incarnation,
            fabric_uri=endpoint.uri,
            tokens=1,
        )
        return Prefill(
            runtime,
            scheduler,
            Pusher(endpoint, TRANSFER_SECONDS),
            TicketBook(endpoint.incarnation, TICKETS, TICKET_SECONDS),
            origin,
            config.limits.prefill_chunk_tokens,
            self._link.send,
            intake.changed,
        )
