"""How the commands reach a cluster: kubectl's own options, and errors that a person can act on.

Nothing writes but ``rollout``, which edits a ModelDeployment's spec, and ``eplb apply|pause|resume``, which edit an
ExpertPlacement. A command that only reads one namespace asks for no more than that namespace, so that people with few
rights can use it.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated, TypeVar

import aiohttp
import typer
from kubernetes.aio.config import ConfigException
from yaml import YAMLError

from xdeepserve_cli.place import CliError, Place
from xdeepserve_operator.runtime.kube import ApiError, KubeApi, default_namespace

Kubeconfig = Annotated[
    Path | None,
    typer.Option("--kubeconfig", exists=True, dir_okay=False, help="Kubeconfig file; KUBECONFIG when not given."),
]
Context = Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig; its current one at first.")]
Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Namespace; the context's when not given.")]
A = TypeVar("A")


@asynccontextmanager
async def connected(kubeconfig: Path | None, context: str | None, namespace: str | None) -> AsyncIterator[Place]:
    """The place that the options name; ``CliError`` when they name none, or when its API server does not answer."""
    async with AsyncExitStack() as stack:
        try:
            api = await stack.enter_async_context(KubeApi.connect(kubeconfig, context))
            place = Place(api, namespace or default_namespace(kubeconfig, context))
        except (ConfigException, YAMLError, OSError) as error:
            source = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
            raise CliError(
                f"no cluster can be told from {source}: {error}; name a kubeconfig with --kubeconfig or KUBECONFIG "
                "('xdeepserve cluster kubeconfig' prints that of a local cluster)"
            ) from error
        try:
            yield place
        except (aiohttp.ClientError, TimeoutError) as error:
            raise CliError(
                f"the API server {api.configuration.host} does not answer: {error or 'no answer in time'}; "
                "is it the right --kubeconfig or --context, and does the cluster run?"
            ) from error


def perform(work: Callable[[], Awaitable[A]]) -> A:
    """Runs a command's work; what can go wrong outside is printed as one line, exit status 1."""

    async def run() -> A:
        return await work()

    try:
        return asyncio.run(run())
    except ApiError as error:
        typer.echo(f"error: {_refused(error)}", err=True)
    except CliError as error:
        typer.echo(f"error: {error}", err=True)
    raise typer.Exit(1)


def _refused(error: ApiError) -> str:
    """What the API server said, and what to do about it where that is not plain."""
    message = error.message.strip() or error.reason
    if error.status == 401:
        return f"the API server does not know you: {message}; log in again, or choose another --context"
    if error.status == 403:
        return f"you may not do that: {message}; 'kubectl auth can-i --list' shows what you may"
    if error.status >= 500 or error.status == 429:
        return f"the API server is in trouble ({error.status}): {message}; try again later"
    return message
