"""Talks to the TE-shells of TaskExecutors: hears what they report, tells them their rosters and memberships.

What was last sent is remembered only to save an epoch; all of it can be lost (see planner.membership). A shell that
does not answer is believed for a short while longer, for one late answer is no reason to stop serving; after that its
instance does not count as serving, and what it said is forgotten.
"""

import asyncio
from collections.abc import Sequence

from flowserve.wire import Membership, ShellStatus
from xdeepserve_operator.controllers.ports import Clock, Engines
from xdeepserve_operator.planner.instance import InstanceView
from xdeepserve_operator.planner.membership import membership_for, roster_for
from xdeepserve_operator.planner.pods import PodView
from xdeepserve_operator.planner.recent import Recent

BELIEVED_SECONDS = 3.0


class Fleet:
    """All instances, by namespace and name."""

    def __init__(self, engines: Engines, clock: Clock) -> None:
        self._engines, self._clock = engines, clock
        self._heard = Recent[tuple[str, str], ShellStatus](BELIEVED_SECONDS)  # by shell pod and address
        self._sent: dict[tuple[str, str], Membership] = {}
        self._refused: dict[tuple[str, str], int] = {}

    async def poll(self, token: str, shells: Sequence[PodView]) -> dict[int, ShellStatus]:
        """What each TE-shell says, by replica; those that do not answer are left out."""
        reachable = [shell for shell in shells if shell.alive and shell.ip]
        answers = await asyncio.gather(*(self._hear(shell, token) for shell in reachable))
        return {shell.replica: answer for shell, answer in zip(reachable, answers, strict=True) if answer is not None}

    def last(self, shell: PodView) -> ShellStatus | None:
        """What the TE-shell said last, if it can still be believed."""
        return self._heard.get(_key(shell), self._clock.monotonic())

    async def steer(self, namespace: str, token: str, views: Sequence[InstanceView]) -> None:
        """Sends rosters and memberships where they are due."""
        await asyncio.gather(*(self._steer((namespace, view.name), token, view) for view in views))

    def forget(self, namespace: str, instance: str) -> None:
        """Drops what is remembered of an instance that is gone."""
        self._sent.pop((namespace, instance), None)
        self._refused.pop((namespace, instance), None)

    def forget_all(self, namespace: str, executor: str) -> None:
        """Drops what is remembered of the instances of a TaskExecutor that is gone."""
        for key in {*self._sent, *self._refused}:
            if key[0] == namespace and key[1].rpartition("-")[0] == executor:
                self.forget(*key)

    async def _hear(self, shell: PodView, token: str) -> ShellStatus | None:
        answer = await self._engines.shell_status(shell.ip, token)
        if answer is not None:
            self._heard.put(_key(shell), answer, self._clock.monotonic())
        return self.last(shell)

    async def _steer(self, key: tuple[str, str], token: str, view: InstanceView) -> None:
        if view.shell is None or view.report is None:
            return
        roster = roster_for(view)
        if roster is not None:
            await self._engines.put_roster(view.shell.ip, token, roster)
            return  # the next report shows whom the shell hears
        step = membership_for(view, self._sent.get(key), self._refused.get(key, 0))
        if not isinstance(step, Membership):
            return
        if await self._engines.put_membership(view.shell.ip, token, step):
            self._sent[key] = step
        else:
            self._refused[key] = step.epoch


def _key(shell: PodView) -> tuple[str, str]:
    return f"{shell.namespace}/{shell.name}", shell.ip
