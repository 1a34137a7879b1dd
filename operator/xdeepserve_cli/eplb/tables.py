"""What the commands print."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from eplb import Balance
from eplb.load import LoadWindow
from eplb.plan import Plan


def console() -> Console:
    """Wide enough for the tables when output goes to a file."""
    return Console(width=None if Console().is_terminal else 120)


def print_plan(plan: Plan) -> None:
    """What a plan changes, gains and costs."""
    table = Table("", "Before", "Planned", title=f"policy {plan.policy}", title_justify="left")
    for heading in ("mean", "worst"):
        before = getattr(plan.before, heading) if plan.before else None
        table.add_row(f"max/mean, {heading} layer", _figure(before), _figure(getattr(plan.predicted, heading)))
    console().print(table)
    lines = [f"layers changed: {len(plan.changed)} of {plan.placement.layers}"]
    if plan.first:
        lines.append(f"traffic changed at slice {plan.first}; only the slices since then were planned for")
    if plan.half_life:
        lines.append(f"load drifts: recent slices count more, half-life {plan.half_life:g} slices")
    if plan.cost:
        lines.append(f"the barrier waits {100 * plan.gain:.1f} % less")
        lines.append(
            f"to move: {plan.cost.moves} expert copies, {plan.cost.bytes / 1e9:.2f} GB, "
            f"{plan.cost.seconds * 1e3:.1f} ms on the wire"
        )
    for line in lines:
        console().print(line)


def print_comparison(title: str, rows: Sequence[tuple[str, Balance, Balance | None, float, str]]) -> None:
    """Rows of (name, balance on the window, balance on the next one, seconds, moves)."""
    table = Table(title, "Planned on", "worst layer", "Held out", "worst layer", "Seconds", "Moves a layer")
    for name, fit, following, seconds, moves in rows:
        held = (_figure(following.mean), _figure(following.worst)) if following else ("", "")
        table.add_row(name, _figure(fit.mean), _figure(fit.worst), *held, f"{seconds:.2f}", moves)
    console().print(table)


def print_load(window: LoadWindow) -> None:
    """How skewed a load is, layer by layer."""
    table = Table("Layer", "Tokens a slice", "Hottest/mean", "Hottest expert", "Above mean", "Idle experts")
    mean = window.counts.mean(0)
    for number, layer in enumerate(mean):
        even = layer.mean()
        hottest = f"{layer.max() / even:.2f}" if even else ""
        tokens = f"{layer.sum() / max(1, window.top_k):.0f}"
        above, idle = f"{100 * (layer > even).mean():.0f} %", str(int((layer == 0).sum()))
        table.add_row(str(number), tokens, hottest, str(int(layer.argmax())), above, idle)
    console().print(
        f"{window.slices} slices, {window.layers} layers, {window.experts} experts, top {window.top_k or '?'}"
    )
    console().print(table)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
