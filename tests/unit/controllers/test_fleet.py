"""What the fleet remembers of TE-shells: as long as they can be believed, and not a life longer."""

from __future__ import annotations

from datetime import UTC, datetime

from flowserve.wire import ShellStatus
from xdeepserve_operator.controllers.fleet import BELIEVED_SECONDS, Fleet
from xdeepserve_operator.planner.pods import PodView, view_pod


class Shells:
    """Answers of all TE-shells, and the clock."""

    def __init__(self) -> None:
        self.silent: set[str] = set()
        self.time = 100.0

    async def shell_status(self, host: str, token: str) -> ShellStatus | None:
        return None if host in self.silent else ShellStatus(instance=host, incarnation="i")

    def monotonic(self) -> float:
        return self.time

    def now(self) -> datetime:
        return datetime.now(UTC)


def shell(host: str) -> PodView:
    return view_pod(
        {
            "metadata": {"name": f"chat-decode-0-shell-{host}", "namespace": "n", "labels": {}},
            "spec": {"containers": [], "nodeName": "s"},
            "status": {"phase": "Running", "podIP": host},
        }
    )


async def test_a_silent_shell_is_believed_for_a_while() -> None:
    shells = Shells()
    fleet = Fleet(shells, shells)  # type: ignore[arg-type]
    said = await fleet.poll("t", [shell("a")])
    shells.silent.add("a")
    shells.time += BELIEVED_SECONDS
    assert await fleet.poll("t", [shell("a")]) == said
    assert fleet.last(shell("a")) is not None
    shells.time += 0.1
    assert await fleet.poll("t", [shell("a")]) == {}
    assert fleet.last(shell("a")) is None


async def test_what_shells_said_that_are_gone_is_not_kept() -> None:
    shells = Shells()
    fleet = Fleet(shells, shells)  # type: ignore[arg-type]
    for number in range(50):
        await fleet.poll("t", [shell(f"10.0.0.{number}"), shell("a")])
        shells.time += 1.0
    assert len(fleet._heard) <= BELIEVED_SECONDS + 2
