"""``xdeepserve``: one command for people; each part is imported only when it is asked for, so that help is instant."""

import importlib
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from xdeepserve_cli.group import group

PARTS = {
    "cluster": ("xdeepserve_cluster.cli", "app", "A local Kubernetes with emulated SuperPod servers."),
    "demo": ("xdeepserve_demo.cli", "demo", "Apply a model, chat with it, break a die, watch it heal."),
    "bench": ("xdeepserve_bench.cli", "app", "Benchmarks, as tables or JSON."),
    "eplb": ("xdeepserve_cli.eplb.commands", "app", "Expert placements: planned offline, or those of a cluster."),
    "explain-placement": (
        "xdeepserve_cli.explain.command",
        "explain_placement",
        "Why a TaskExecutor's groups are where they are, and why not elsewhere.",
    ),
    "rollout": (
        "xdeepserve_cli.rollout.commands",
        "app",
        "History of a deployment's revisions, going back, pausing, waiting for the end.",
    ),
    "status": ("xdeepserve_cli.status.command", "status", "Deployments as trees, down to their dies."),
    "top": ("xdeepserve_cli.top", "top", "Every engine's requests, KV use and tokens a second."),
    "quantise": ("flowserve.quant.cli", "command", "Turn a checkpoint into an INT8 one."),
    "up": ("xdeepserve_demo.cli", "up", "Bring up a local cluster with the operator in it."),
    "install": ("xdeepserve_demo.cli", "install", "Install the operator's charts into a cluster."),
}


class LazyGroup(TyperGroup):
    """Loads a part's command when it is called or its help is asked for."""

    def list_commands(self, _ctx: Any) -> list[str]:
        """Names of all parts."""
        return sorted(PARTS)

    def get_command(self, _ctx: Any, name: str) -> Any:
        """The command of a part, loaded now."""
        if name not in PARTS:
            return None
        module, attribute, _ = PARTS[name]
        part = getattr(importlib.import_module(module), attribute)
        return typer.main.get_command(part) if isinstance(part, typer.Typer) else _command(name, part)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Lists the parts without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, PARTS[name][2]) for name in self.list_commands(ctx)])


def _command(name: str, function: Callable[..., Any]) -> Any:
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    single.command(name)(function)
    return typer.main.get_command(single)


app = group("Large Mixture-of-Experts models on Ascend SuperPods, with the hardware emulated.", LazyGroup)


@app.callback()
def _root() -> None:
    """Large Mixture-of-Experts models on Ascend SuperPods, with the hardware emulated."""


def main() -> None:
    """Entry point of ``xdeepserve`` and ``kubectl xdeepserve``."""
    app()


if __name__ == "__main__":
    main()
