"""All instances of a benchmark or test, and a client that is operator and frontend to them at once."""

import asyncio
import secrets
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from flowserve.wire import GenerateRequest, Limits, Role, Sampling
from xdeepserve_bench.engines.client import Asked, Client
from xdeepserve_bench.engines.instance import Instance, Site
from xdeepserve_bench.engines.programs import PATIENCE, until

T = TypeVar("T")
GREEDY = Sampling(temperature=0)


class Fleet(Client):
    """Made by ``fleet``, which ends all its processes."""

    def __init__(self, site: Site, session: aiohttp.ClientSession) -> None:
        super().__init__(session)
        self.site = site
        self.instances: list[Instance] = []

    async def instance(
        self, name: str, role: Role, ranks: int, limits: Limits | None = None, *, apart: bool = False
    ) -> Instance:
        """Starts an instance and makes it serve. Raises NotServing."""
        instance = await Instance.begin(self.site, self, name, role, limits or self.site.limits, apart=apart)
        self.instances.append(instance)
        for rank in range(ranks):
            await instance.launch(rank)
        await instance.form()
        return instance

    async def prefill(
        self, instance: Instance, prompt: tuple[int, ...], max_tokens: int, **more: Any
    ) -> GenerateRequest:
        """What to send to a decode engine; ``more`` are further fields of the request, which is greedy at first."""
        fields = {"request_id": secrets.token_hex(4), "sampling": GREEDY, **more}
        request = GenerateRequest(prompt=prompt, max_tokens=max_tokens, **fields)
        return await self.prefilled(await instance.dispatch(), request)

    async def until(self, probe: Callable[[], Awaitable[T | None]], what: str) -> T:
        """Asks until there is an answer. Raises NotServing."""
        return await until(probe, what, self.site.patience)

    def logs(self) -> str:
        """What all processes have said."""
        return "".join(f"--- {path.name}\n{path.read_text()}" for path in sorted(self.site.directory.glob("*.log")))

    async def stop(self) -> None:
        """Ends all processes; those that do not end in time are killed, and TimeoutError is raised."""
        programs: list[Asked] = []
        for instance in self.instances:
            programs += [instance.shell, *instance.engines]
        async with AsyncExitStack() as stack:
            for program in programs:
                stack.push_async_callback(program.kill)
            await asyncio.gather(*(program.stop() for program in programs))


@asynccontextmanager
async def fleet(
    directory: Path,
    checkpoint: Path,
    limits: Limits,
    *,
    memory: Path | None = None,
    token: str = "",
    patience: float = PATIENCE,
) -> AsyncIterator[Fleet]:
    """A fleet that is gone at the end, its memory too; logs lie in ``directory``.

    Memory that a disk stands behind would be written to it while tokens wait, so without ``memory`` it is a folder of
    its own in /dev/shm.
    """
    token = token or secrets.token_hex(16)
    async with AsyncExitStack() as stack:
        if memory is None:
            own = tempfile.TemporaryDirectory(prefix="xdeepserve-bench-", dir="/dev/shm")
            memory = Path(stack.enter_context(own))
        session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}"},
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
        )
        found = Fleet(
            Site(directory, memory, checkpoint, limits, token, patience), await stack.enter_async_context(session)
        )
        stack.push_async_callback(found.stop)
        yield found
