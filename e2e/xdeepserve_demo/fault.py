"""Breaks a die under a decode group while completions stream, and measures how the deployment heals.

The FaultInjection is carried out by the emulated hardware; what is measured here is what a user sees: when the
deployment's Ready turned False and True again, and when the next completion succeeded.
"""

import asyncio
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from xdeepserve_demo.assets import asset
from xdeepserve_demo.load import Load
from xdeepserve_demo.observe import Observer, condition
from xdeepserve_demo.session import NAMESPACE, Session
from xdeepserve_operator.runtime.resources import FAULTINJECTIONS

FAULT = "kill-one-die"
RECOVERY_SECONDS = 60.0


@dataclass(frozen=True)
class FaultOutcome:
    """Times in seconds from the die's death, and where it happened."""

    server: str
    die: int
    pods: list[str]
    detected: float
    ready_again: float
    next_completion: float


async def break_die(session: Session, load: Load, manifest: Path | None = None, name: str = FAULT) -> FaultOutcome:
    """Applies the fault and waits until the deployment is Ready again and a new completion succeeded."""
    fault = Observer(name)
    following = asyncio.create_task(fault.follow(session.api, FAULTINJECTIONS, NAMESPACE))
    try:
        await session.apply(manifest or asset("examples") / "fault-die-kill.yaml")
        struck = await fault.until(_injected, "carried out by the servers", RECOVERY_SECONDS)
        death = _monotonic(struck["status"]["injectedAt"])
        deployment = session.deployment
        await deployment.until(lambda _: _fell(deployment, death), "seen to be broken", RECOVERY_SECONDS)
        await deployment.until(lambda obj: condition(obj, "Ready")["status"] == "True", "Ready again", RECOVERY_SECONDS)
        success = await load.first_success_after(death, RECOVERY_SECONDS)
        await fault.until(_recovered, "marked as recovered", RECOVERY_SECONDS)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    after = [change for change in deployment.transitions if change[0] > death]
    status = struck["status"]
    return FaultOutcome(
        server=status["node"],
        die=status["die"],
        pods=status["pods"],
        detected=next(when for when, ready, _ in after if ready != "True") - death,
        ready_again=next(when for when, ready, _ in reversed(after) if ready == "True") - death,
        next_completion=success.ended - death,
    )


def _injected(obj: dict[str, Any]) -> bool:
    return bool(obj.get("status", {}).get("injectedAt"))


def _recovered(obj: dict[str, Any]) -> bool:
    return bool(obj.get("status", {}).get("recoveredAt"))


def _fell(observer: Observer, death: float) -> bool:
    return any(when > death and ready != "True" for when, ready, _ in observer.transitions)


def _monotonic(stamp: str) -> float:
    """A wall-clock time of this machine on the clock of ``time.monotonic``."""
    return time.monotonic() - (time.time() - datetime.fromisoformat(stamp).timestamp())
