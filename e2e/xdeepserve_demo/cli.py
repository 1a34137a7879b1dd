"""``xdeepserve demo``, ``xdeepserve up`` and ``xdeepserve install``."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

Name = Annotated[str, typer.Option("--name", "-n", help="The cluster's name.", envvar="XDEEPSERVE_CLUSTER")]


@contextmanager
def explained() -> Iterator[None]:
    """Errors that a person can act on are printed as they are, without a traceback."""
    from xdeepserve_cluster.errors import ClusterError
    from xdeepserve_demo.errors import DemoError

    try:
        yield
    except (ClusterError, DemoError, TimeoutError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


def demo(
    name: Name = "demo",
    keep: Annotated[bool, typer.Option("--keep", envvar="KEEP", help="Leave the cluster up.")] = False,
) -> None:
    """Apply a model, chat with it, break a die, watch it heal."""
    from xdeepserve_demo.demo import demo as story

    with explained():
        asyncio.run(story(name, keep=keep))


def up(
    name: Name = "demo",
    servers: Annotated[str, typer.Option(help="Emulated servers: chip and number.")] = "910B=2,910C=4",
) -> None:
    """Bring up a local cluster with the operator in it, and tell how to use it."""
    from xdeepserve_cluster import controlplane
    from xdeepserve_cluster.progress import Progress
    from xdeepserve_demo.assets import asset, models
    from xdeepserve_demo.install import install as install_charts
    from xdeepserve_demo.tools import Tools

    progress = Progress()
    with explained():
        spec = controlplane.ClusterSpec(name=name, servers=servers, models=models())
        cluster = controlplane.up(spec, progress=progress)
        with progress.step("operator installed with Helm"):
            asyncio.run(install_charts(Tools(cluster.tools, cluster.kubeconfig)))
    typer.echo(f"export KUBECONFIG={cluster.kubeconfig} PATH={cluster.tools}:$PATH")
    typer.echo(f"kubectl apply -f {asset('examples')}/quickstart.yaml")


def install(
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Cluster to install into; by default the local cluster 'demo'.")
    ] = None,
    name: Name = "demo",
) -> None:
    """Install the operator's charts (CRDs, then operator) with Helm."""
    from xdeepserve_cluster import controlplane
    from xdeepserve_cluster.progress import Progress
    from xdeepserve_demo.install import install as install_charts
    from xdeepserve_demo.tools import Tools

    with explained():
        if kubeconfig is None:
            cluster = controlplane.get(name)
            asyncio.run(install_charts(Tools(cluster.tools, cluster.kubeconfig)))
        else:
            with Tools.borrowed(kubeconfig, Progress()) as tools:
                asyncio.run(install_charts(tools))
