"""An engine's parts, put together around a loaded model: which knows which, and in what order they end.

output process ==link==> Intake -> Scheduler <- Iterations <- Lockstep <- Epochs <- control port
               <==link==          Role (Prefill or Decode) <-> transfers
"""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import aiohttp

from flowserve.cache import PrefixCache
from flowserve.engine.decode import Decode
from flowserve.engine.epochs import Epochs
from flowserve.engine.expert_plane import ExpertPlane
from flowserve.engine.intake import Intake
from flowserve.engine.iteration import Tally
from flowserve.engine.loading import Runtime
from flowserve.engine.prefill import Prefill
from flowserve.engine.scheduler import Scheduler
from flowserve.engine.state import Lifecycle
from flowserve.output.link import FromEngine
from flowserve.transfer.fork import WeightDonor
from flowserve.transfer.pull import Puller
from flowserve.transfer.push import Pusher
from flowserve.transfer.tickets import TicketBook
from flowserve.wire import EngineConfig, TransferTicket
from xccl import Doorbell, Endpoint, Network

SHM_VARIABLE = "XCCL_SHM_DIR"
WAITING_PER_PLACE = 16  # requests that may wait for each place in the batch
TICKETS = 256
TICKET_SECONDS = 30.0
TRANSFER_SECONDS = 30.0
ASK_SECONDS = 10.0  # a prefill engine answers between two chunks


@dataclass(frozen=True)
class Parts:
    """What the outside of an engine talks to."""

    endpoint: Endpoint
    scheduler: Scheduler
    intake: Intake
    role: Prefill | Decode
    plane: ExpertPlane
    epochs: Epochs
    weights: WeightDonor


@asynccontextmanager
async def assembled(
    config: EngineConfig,
    token: str,
    life: Lifecycle,
    runtime: Runtime,
    tally: Tally,
    send: Callable[[FromEngine], None],
) -> AsyncIterator[Parts]:
    """The parts, until the context ends. Raises OSError if memory or an address cannot be had."""
    limits, wake = config.limits, asyncio.Event()
    directory = shm_directory()
    async with AsyncExitStack() as stack:
        network = network_of(config, token)
        endpoint = stack.enter_context(Endpoint.create(directory, life.incarnation, runtime.layout, network=network))
        doorbell = stack.enter_context(Doorbell(config.host, config.doorbell_port))
        caching = limits.prefix_cache and config.role == "Prefill"
        cache = PrefixCache(runtime.pool, limits.kv_block_tokens) if caching else None
        scheduler = Scheduler(runtime.pool, limits.max_batch, WAITING_PER_PLACE * limits.max_batch, cache)
        intake = Intake(life, scheduler, wake, send, runtime.config.vocab_size, runtime.max_context)
        if config.role == "Prefill":
            intake.role = Prefill(
                runtime,
                scheduler,
                Pusher(endpoint, TRANSFER_SECONDS),
                TicketBook(endpoint.incarnation, TICKETS, TICKET_SECONDS),
                _origin(config, endpoint),
                limits.prefill_chunk_tokens,
                cache,
                tally,
                send,
                intake.changed,
            )
        else:
            http = await stack.enter_async_context(
                aiohttp.ClientSession(
                    headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
                    timeout=aiohttp.ClientTimeout(total=ASK_SECONDS),
                )
            )
            puller = Puller(endpoint, http, config.host, TRANSFER_SECONDS)
            intake.role = Decode(runtime, scheduler, puller, send, intake.changed)
        plane = ExpertPlane(runtime, endpoint, wake.set)
        epochs = Epochs(
            life,
            plane,
            scheduler,
            intake.role,
            endpoint,
            doorbell,
            wake,
            intake.changed,
            tally,
            limits.collective_timeout_seconds,
        )
        weights = WeightDonor(runtime.directory, endpoint, TRANSFER_SECONDS)
        yield Parts(endpoint, scheduler, intake, intake.role, plane, epochs, weights)


def shm_directory() -> str:
    """Where the memory of dies lies."""
    return os.environ.get(SHM_VARIABLE) or "/dev/shm"


def network_of(config: EngineConfig, token: str) -> Network:
    """How engines of other hosts reach an engine."""
    return Network(_group_secret(token), config.host, config.fabric_port)


def _group_secret(token: str) -> bytes:
    """What the engines of a deployment prove to each other on the fabric; the token cannot be told from it."""
    return hmac.digest(token.encode(), b"xdeepserve fabric", "sha256")


def _origin(config: EngineConfig, endpoint: Endpoint) -> TransferTicket:
    return TransferTicket(
        id="none",
        host=config.host,
        control_port=config.control_port,
        incarnation=endpoint.incarnation,
        fabric_uri=endpoint.uri,
        tokens=1,
    )
