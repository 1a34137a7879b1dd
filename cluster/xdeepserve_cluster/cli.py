"""`xdeepserve cluster …`: a real Kubernetes on this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from shlex import quote
from typing import Annotated

import typer

from xdeepserve_cluster.errors import ClusterError

app = typer.Typer(no_args_is_help=True, help="A real Kubernetes control plane with emulated SuperPod servers.")

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
    servers: Annotated[str, typer.Option(help="Emulated servers: chip and number, comma-separated.")] = "910B=2,910C=4",
    superpod: Annotated[str, typer.Option(help="The SuperPod that the servers belong to.")] = "pod-a",
    agent: Annotated[bool, typer.Option(help="Run the emulated servers.")] = True,
) -> None:
    """Bring a cluster up, or repair it; does nothing if it is up."""
    from pydantic import ValidationError

    from xdeepserve_cluster import controlplane
    from xdeepserve_cluster.progress import Progress

    with _explained():
        try:
            spec = controlplane.ClusterSpec(name=name, servers=servers, superpod=superpod, agent=agent)
        except ValidationError as error:
            first = error.errors()[0]
            raise ClusterError(f"--{first['loc'][0]}: {first['msg']} (given: {first['input']!r})") from None
        cluster = controlplane.up(spec, progress=Progress())
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
    """Show a cluster's components; exit status 1 unless all are ready."""
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
