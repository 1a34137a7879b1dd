"""`xdeepserve cluster …`: a real Kubernetes on this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from xdeepserve_cluster.errors import ClusterError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="A real Kubernetes control plane with emulated SuperPod servers.",
)

Name = Annotated[str, typer.Option("--name", "-n", help="The cluster's name.", envvar="XDEEPSERVE_CLUSTER")]


@contextmanager
def _explained() -> Iterator[None]:
    """Errors that a person can act on are printed as they are, without a traceback."""
    try:
        yield
    except ClusterError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


@app.command()
def up(
    name: Name = "demo",
    servers: Annotated[str | None, typer.Option(metavar="SPEC", help="Emulated servers, as 910B=2,910C=4.")] = None,
    superpod: Annotated[str | None, typer.Option(help="The SuperPod of the servers; pod-a at first.")] = None,
    models: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="The directory that is file:///models/.")
    ] = None,
    agent: Annotated[bool | None, typer.Option(help="Run the emulated servers.")] = None,
) -> None:
    """Bring a cluster up, or repair it; does nothing if it is up. What is not given stays as it is."""
    from xdeepserve_cluster import controlplane
    from xdeepserve_cluster.progress import Progress

    options = {"servers": servers, "superpod": superpod, "models": models, "agent": agent}
    given = {option: value for option, value in options.items() if value is not None}
    with _explained():
        cluster = controlplane.up(controlplane.specify(name, given), progress=Progress())
    typer.echo(f"export KUBECONFIG={quote(str(cluster.kubeconfig))} PATH={quote(str(cluster.tools))}:$PATH")


@app.command()
def down(name: Name = "demo") -> None:
    """Stop everything of a cluster and remove its files."""
    from xdeepserve_cluster import controlplane
    from xdeepserve_cluster.progress import Progress

    with _explained():
        if not controlplane.down(name, progress=Progress()):
            typer.echo(f"there is no cluster {name}", err=True)


@app.command()
def status(
    name: Name = "demo", output: Annotated[str, typer.Option("--output", "-o", help="table or json.")] = "table"
) -> None:
    """Show a cluster's components. Exit status 1 unless all are ready."""
    from xdeepserve_cluster import controlplane

    if output not in ("table", "json"):
        raise typer.BadParameter("must be table or json", param_hint="--output")
    with _explained():
        answer = controlplane.status(name)
    if output == "json":
        typer.echo(json.dumps(answer.document(), indent=2))
    else:
        from xdeepserve_cluster.table import print_status

        print_status(answer)
    if not answer.ready:
        raise typer.Exit(1)


@app.command()
def kubeconfig(name: Name = "demo") -> None:
    """Print the path of a cluster's kubeconfig."""
    from xdeepserve_cluster import controlplane

    with _explained():
        typer.echo(controlplane.get(name).kubeconfig)


@app.command()
def logs(
    component: Annotated[str, typer.Argument(help="etcd, kube-apiserver, …, agent.")],
    name: Name = "demo",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until interrupted.")] = False,
) -> None:
    """Print a component's log."""
    from xdeepserve_cluster import controlplane

    with _explained():
        path = controlplane.log_file(name, component)
    try:
        for piece in controlplane.read_log(path, follow=follow):
            sys.stdout.write(piece)
            sys.stdout.flush()
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
