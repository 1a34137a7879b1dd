"""How the commands reach a cluster: kubectl's own options, and errors that a person can act on.

Nothing writes but ``rollout``, which edits a ModelDeployment's spec, and ``eplb apply|pause|resume``, which edit an
ExpertPlacement. A command that only reads one namespace asks for no more than that namespace, so that people with few
rights can use it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import aiohttp
import typer

from xdeepserve_operator.runtime.kube import ApiError, KubeApi, Object, default_namespace
from xdeepserve_operator.runtime.resources import Resource

Kubeconfig = Annotated[Path | None, typer.Option("--kubeconfig", help="Kubeconfig file; KUBECONFIG when not given.")]
Context = Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig; its current one at first.")]
Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Namespace; the context's when not given.")]
A = TypeVar("A")


class CliError(Exception):
    """What a person did or asked for cannot be; the message says what to do."""


@dataclass(frozen=True)
class Place:
    """A connection and the namespace that is meant."""

    api: KubeApi
    namespace: str

    async def list(self, resource: Resource, *, labels: str = "") -> Sequence[Object]:
        """Objects of the namespace, each with its kind."""
        items, _ = await self.api.list(resource, self.namespace, labels=labels)
        return [{"apiVersion": resource.api_version, "kind": resource.kind, **item} for item in items]


@asynccontextmanager
async def connected(kubeconfig: Path | None, context: str | None, namespace: str | None) -> AsyncIterator[Place]:
    """The place that the options name."""
    async with KubeApi.connect(kubeconfig, context) as api:
        yield Place(api, namespace or default_namespace(kubeconfig, context))


def perform(work: Callable[[], Awaitable[A]]) -> A:
    """Runs a command's work; what can go wrong outside is printed as one line, exit status 1."""
    from kubernetes.aio.config import ConfigException

    async def run() -> A:
        return await work()

    try:
        return asyncio.run(run())
    except ApiError as error:
        typer.echo(f"error: {error.message or error}", err=True)
    except (CliError, ConfigException) as error:
        typer.echo(f"error: {error}", err=True)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        typer.echo(f"error: the API server does not answer: {error}", err=True)
    raise typer.Exit(1)
