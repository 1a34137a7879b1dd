"""What TE-shells and frontends would say, from one process: ``python -m xdeepserve_bench.control_plane.standin``.

It watches pods, listens at the address of every TE-shell and frontend pod, and answers the operator as a healthy data
plane does: every process on a roster is heard and waits; a membership that is spread makes all its members serve in
that epoch; routes are taken. A rank whose process changed waits for the next membership. Nothing is computed, so what
is measured is the control plane.
"""

import argparse
import asyncio
import signal
from pathlib import Path

from aiohttp import web

from flowserve.shell.digest import digest
from flowserve.wire import (
    EngineStatus,
    FrontendStatus,
    Member,
    Membership,
    RankReport,
    Roster,
    RosterEntry,
    Routes,
    ShellStatus,
)
from xdeepserve_operator.api import names
from xdeepserve_operator.runtime.kube import KubeApi, Object
from xdeepserve_operator.runtime.reflector import Reflector
from xdeepserve_operator.runtime.resources import PODS

LABELS = f"{names.LABEL_COMPONENT} in ({names.COMPONENT_SHELL},{names.COMPONENT_FRONTEND})"


class Shell:
    """One TE-shell and all engines that it listens to."""

    def __init__(self, instance: str, life: str) -> None:
        self._instance, self._life = instance, life
        self._roster: tuple[RosterEntry, ...] = ()
        self._members: dict[int, Member] = {}
        self._epoch = 0
        self._answer: tuple[bytes, str] | None = None

    def routes(self) -> list[web.RouteDef]:
        """Its control routes."""
        return [
            web.get("/v1/status", self._status),
            web.put("/v1/roster", self._take_roster),
            web.put("/v1/membership", self._take_membership),
        ]

    async def _status(self, request: web.Request) -> web.Response:
        if self._answer is None:
            ranks = tuple(self._report(entry) for entry in self._roster)
            ready = bool(ranks) and all(one.status is not None and one.status.state == "Serving" for one in ranks)
            said = ShellStatus(
                instance=self._instance, incarnation=self._life, epoch=self._epoch, ranks=ranks, ready=ready
            )
            self._answer = said.model_dump_json().encode(), digest(said)
        body, etag = self._answer
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers={"ETag": etag})
        return web.Response(body=body, content_type="application/json", headers={"ETag": etag})

    def _report(self, entry: RosterEntry) -> RankReport:
        life = f"at-{entry.host}"
        member = self._members.get(entry.rank)
        serves = member is not None and member.incarnation == life
        status = EngineStatus(
            name=f"{self._instance}-dp{entry.rank}",
            incarnation=life,
            fabric_uri=f"shm:///{entry.host}",
            state="Serving" if serves else "Waiting",
            epoch=self._epoch if serves else 0,
        )
        return RankReport(rank=entry.rank, host=entry.host, silent_seconds=0, ever_heard=True, status=status)

    async def _take_roster(self, request: web.Request) -> web.Response:
        self._roster, self._answer = Roster.model_validate_json(await request.read()).entries, None
        return web.Response(status=204)

    async def _take_membership(self, request: web.Request) -> web.Response:
        membership = Membership.model_validate_json(await request.read())
        if membership.epoch < self._epoch:
            return web.Response(status=409)
        self._epoch, self._members = membership.epoch, {one.rank: one for one in membership.members}
        self._answer = None
        return web.Response(status=204)


class Frontend:
    """One frontend: it takes routes."""

    def __init__(self, life: str) -> None:
        self._life, self._epoch = life, 0

    def routes(self) -> list[web.RouteDef]:
        """Its control routes."""
        return [web.get("/v1/status", self._status), web.put("/v1/routes", self._take)]

    async def _status(self, _request: web.Request) -> web.Response:
        return web.json_response(FrontendStatus(incarnation=self._life, epoch=self._epoch).model_dump())

    async def _take(self, request: web.Request) -> web.Response:
        self._epoch = Routes.model_validate_json(await request.read()).epoch
        return web.Response(status=204)


class StandIn:
    """Listeners of all pods that are to be played."""

    def __init__(self) -> None:
        self._runners: dict[str, web.AppRunner] = {}
        self._wanted: dict[str, Object] = {}
        self._changed = asyncio.Event()

    def on_event(self, kind: str, pod: Object) -> None:
        """Hears of a pod."""
        metadata = pod["metadata"]
        if kind == "DELETED":
            self._wanted.pop(metadata["uid"], None)
        elif pod.get("status", {}).get("podIP"):
            self._wanted[metadata["uid"]] = pod
        self._changed.set()

    async def run(self) -> None:
        """Listens and stops listening as pods come and go, until cancelled."""
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                for uid in self._runners.keys() - self._wanted.keys():
                    await self._runners.pop(uid).cleanup()
                for uid in self._wanted.keys() - self._runners.keys():
                    self._runners[uid] = await _listen(self._wanted[uid])
        finally:
            for runner in self._runners.values():
                await runner.cleanup()


async def _listen(pod: Object) -> web.AppRunner:
    labels, uid = pod["metadata"]["labels"], pod["metadata"]["uid"]
    shell = labels[names.LABEL_COMPONENT] == names.COMPONENT_SHELL
    instance = f"{labels.get(names.LABEL_EXECUTOR, '')}-{labels.get(names.LABEL_REPLICA, '')}"
    app = web.Application(client_max_size=16 * 2**20)
    app.add_routes(Shell(instance, uid).routes() if shell else Frontend(uid).routes())
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, pod["status"]["podIP"], names.PORT_CONTROL).start()
    return runner


async def main(kubeconfig: Path) -> None:
    """Plays until told to stop."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with KubeApi.connect(kubeconfig) as api:
        play = StandIn()
        tasks = [asyncio.create_task(play.run())]
        tasks.append(asyncio.create_task(Reflector(api, PODS, play.on_event, labels=LABELS).run()))
        waiting = asyncio.create_task(stop.wait())
        await asyncio.wait([*tasks, waiting], return_when=asyncio.FIRST_COMPLETED)
        for task in [*tasks, waiting]:
            task.cancel()
        await asyncio.gather(*tasks, waiting, return_exceptions=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    asyncio.run(main(parser.parse_args().kubeconfig))
