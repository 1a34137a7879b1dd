"""A gang of engines and their TE-shell, and the part that the operator plays for them: roster, then membership."""

from dataclasses import dataclass, field
from pathlib import Path

from flowserve.wire import (
    DispatchReply,
    DispatchRequest,
    EngineConfig,
    EngineStatus,
    Limits,
    Member,
    Membership,
    Role,
    Roster,
    RosterEntry,
    ShellConfig,
    ShellStatus,
)
from xdeepserve_bench.engines.client import Client
from xdeepserve_bench.engines.programs import NotServing, Program, own_host, start, until


@dataclass(frozen=True)
class Site:
    """Where processes run: logs in ``directory``, shared memory in ``memory``; ``patience`` in seconds.

    ``limits`` are those of instances that have none of their own.
    """

    directory: Path
    memory: Path
    checkpoint: Path
    limits: Limits
    token: str
    patience: float


@dataclass
class Instance:
    """``apart``: every rank is on a host of its own, as far as memory goes. ``epoch`` is the last that was sent."""

    site: Site
    client: Client
    name: str
    role: Role
    limits: Limits
    shell: Program[ShellConfig]
    apart: bool = False
    engines: list[Program[EngineConfig]] = field(default_factory=list)
    epoch: int = 0

    @classmethod
    async def begin(
        cls, site: Site, client: Client, name: str, role: Role, limits: Limits, *, apart: bool
    ) -> "Instance":
        """One without engines."""
        config = ShellConfig(instance=name, role=role, host=own_host(), heartbeat_seconds=0.2)
        shell = await start("flowserve.shell", config, site.directory, token=site.token, memory=site.memory)
        return cls(site, client, name, role, limits, shell, apart)

    async def launch(self, rank: int) -> None:
        """Starts a rank, in the place of the one before, if there was one."""
        site = self.site
        config = EngineConfig(
            name=f"{self.name}-dp{rank}",
            instance=self.name,
            role=self.role,
            dp_rank=rank,
            model_name=site.checkpoint.name,
            model_uri=site.checkpoint.as_uri(),
            limits=self.limits,
            host=own_host(),
        )
        memory = site.memory / f"{self.name}-{rank}" if self.apart else site.memory
        program = await start("flowserve.engine", config, site.directory, token=site.token, memory=memory)
        self.engines[rank:] = [program, *self.engines[rank + 1 :]]

    async def status(self) -> ShellStatus | None:
        """What the TE-shell says; None while nobody is there."""
        return await self.client.ask(self.shell, "GET", "/v1/status", None, ShellStatus)

    async def engine_status(self, rank: int) -> EngineStatus:
        """What an engine says. Raises NotServing where nobody is there."""
        status = await self.client.ask(self.engines[rank], "GET", "/v1/status", None, EngineStatus)
        if status is None:
            raise NotServing(f"rank {rank} of {self.name} does not answer; see {self.engines[rank].log}")
        return status

    async def form(self) -> Membership:
        """Makes the engines that run now the members of a new epoch, and waits until they serve. Raises NotServing."""
        statuses = await self._heard()
        self.epoch += 1
        members = tuple(
            Member(
                rank=rank,
                host=each.config.host,
                api_port=each.config.api_port,
                control_port=each.config.control_port,
                doorbell_port=each.config.doorbell_port,
                incarnation=statuses[rank].incarnation,
                fabric_uri=statuses[rank].fabric_uri,
            )
            for rank, each in enumerate(self.engines)
        )
        membership = Membership(instance=self.name, epoch=self.epoch, members=members)
        await self.client.call(self.shell, "PUT", "/v1/membership", membership)

        async def serving() -> bool | None:
            self._check()
            status = await self.status()
            return True if status is not None and status.ready and status.epoch == self.epoch else None

        await until(serving, f"{self.name} serves in epoch {self.epoch}", self.site.patience)
        return membership

    async def dispatch(self) -> DispatchReply:
        """The engine that the TE-shell picks. Raises Refusal."""
        request = DispatchRequest(request_id="r", tokens=1)
        return DispatchReply.model_validate_json(await self.client.call(self.shell, "POST", "/v1/dispatch", request))

    async def _heard(self) -> dict[int, EngineStatus]:
        """Sends the roster and waits until all of it has been heard, as the process that it now is."""
        entries = tuple(
            RosterEntry(
                rank=rank, host=each.config.host, api_port=each.config.api_port, control_port=each.config.control_port
            )
            for rank, each in enumerate(self.engines)
        )
        roster = Roster(instance=self.name, entries=entries)

        async def told() -> ShellStatus | None:
            self._check()
            return await self.client.ask(self.shell, "PUT", "/v1/roster", roster, ShellStatus)

        async def all_heard() -> dict[int, EngineStatus] | None:
            self._check()
            status = await self.status()
            if status is None or not all(report.status and report.status.fabric_uri for report in status.ranks):
                return None
            return {report.rank: report.status for report in status.ranks if report.status}

        await until(told, f"the shell of {self.name} takes its roster", self.site.patience)
        return await until(all_heard, f"all of {self.name} are heard", self.site.patience)

    def _check(self) -> None:
        """Raises NotServing as soon as waiting is in vain."""
        self.shell.check()
        for engine in self.engines:
            engine.check()
