"""``xdeepserve status [NAME]``: reads one namespace once and prints its trees."""

import asyncio
from typing import Annotated

import typer

from xdeepserve_cli.access import Context, Kubeconfig, Namespace, connected, perform
from xdeepserve_cli.output import Format, Output, print_document
from xdeepserve_cli.place import Place
from xdeepserve_cli.status.render import print_trees
from xdeepserve_cli.status.tree import Branch, World, trees
from xdeepserve_operator.api.names import LABEL_MANAGED_BY, MANAGED_BY
from xdeepserve_operator.runtime import resources


def status(
    name: Annotated[str | None, typer.Argument(help="A ModelDeployment or TaskExecutor; all when not given.")] = None,
    namespace: Namespace = None,
    output: Output = Format.TEXT,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Show DP groups that are ready, too.")] = False,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show deployments as trees, down to their dies; exit status 1 unless all are ready."""

    async def read() -> tuple[str, list[Branch]]:
        async with connected(kubeconfig, context, namespace) as place:
            found = trees(await _world(place), name)
            if name is not None and not found:
                raise await place.none_such(name, resources.MODELDEPLOYMENTS, resources.TASKEXECUTORS)
            return place.namespace, found

    where, found = perform(read)
    if output is Format.TEXT:
        print_trees(found, everything=everything)
    else:
        print_document([branch.document() for branch in found], output)
    if not found:
        typer.echo(f"there is no ModelDeployment in namespace {where}; choose another with --namespace", err=True)
    if not all(branch.ready for branch in found):
        raise typer.Exit(1)


async def _world(place: Place) -> World:
    managed = f"{LABEL_MANAGED_BY}={MANAGED_BY}"
    deployments, executors, groups, pods = await asyncio.gather(
        place.list(resources.MODELDEPLOYMENTS),
        place.list(resources.TASKEXECUTORS),
        place.list(resources.DPGROUPS),
        place.list(resources.PODS, labels=managed),
    )
    return World(deployments, executors, groups, pods)
