"""``xccl``: the library's own command, for those who use it on its own. ``xccl bench`` is ``xdeepserve bench xccl``.

It lives here since imports point one way: the library knows nothing of the benchmark that compares it.
"""

import typer

from xdeepserve_bench.cli import AsJson, Plot, Quick, conduct

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="XCCL: dies that talk by reading and writing each other's memory.",
)


@app.callback()
def _root() -> None:
    """Make ``bench`` a word of its own, although it is the only one."""


@app.command()
def bench(quick: Quick = False, as_json: AsJson = False, plot: Plot = None) -> None:
    """Compare XCCL with Open MPI, pyzmq, gloo and TCP, all measured now; exit status 1 when a bar is missed."""
    conduct("xccl", quick=quick, as_json=as_json, plot=plot)
