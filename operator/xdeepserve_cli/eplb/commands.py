"""The commands: show, plan, evaluate, compare, convert; those for a cluster are in ``live``."""

import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from eplb import Balance, Cluster, LoadWindow, Placement, Unplannable, balance
from eplb.balance import npu_shares
from eplb.plan import plan
from eplb.policies import Options
from eplb.search import BUDGETS, Budget
from eplb.traces.files import write_load
from xdeepserve_cli.access import Context, Kubeconfig, Namespace
from xdeepserve_cli.eplb import inputs, live, outputs, tables
from xdeepserve_cli.eplb.picture import heat_map
from xdeepserve_cli.group import group
from xdeepserve_cli.output import Format, Output

app = group("Plan and judge expert placements offline, from a recording; look at and steer those of a cluster.")
live.register(app)

Policy = Annotated[str, typer.Option("--policy", help="search, incremental, greedy, activated, none, or your own.")]
BudgetName = Annotated[str, typer.Option("--budget", help=f"How long to search: {', '.join(BUDGETS)}.")]
Current = Annotated[Path | None, typer.Option("--current", help="The placement in force, .npz or SGLang's .json.")]
Seed = Annotated[int, typer.Option("--seed")]


@app.command()
def show(
    load: Annotated[str, typer.Argument(metavar="LOAD|NAME", help="A load as below, or an ExpertPlacement's name.")],
    slices: inputs.Slices = inputs.DEFAULT_SLICES,
    part: inputs.Part = "",
    top_k: inputs.TopK = 0,
    namespace: Namespace = None,
    output: Output = Format.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """How skewed a load is. A name that is no file is an ExpertPlacement of the cluster."""
    if not inputs.is_load(load):
        live.show(load, namespace, output, context, kubeconfig)
        return
    with inputs.plain_errors():
        tables.print_load(inputs.load_of(load, slices, part, top_k))


@app.command("plan")
def plan_command(
    load: inputs.LoadFile,
    npus: inputs.Npus,
    slots: inputs.Slots,
    policy: Policy = "search",
    budget: BudgetName = "default",
    moves: Annotated[int | None, typer.Option("--moves", help="Most expert copies that move, a layer.")] = None,
    pin_base: Annotated[int, typer.Option("--pin-base", help="First slots of each NPU that keep their expert.")] = 0,
    current: Current = None,
    seed: Seed = Options.seed,
    slices: inputs.Slices = inputs.DEFAULT_SLICES,
    part: inputs.Part = "",
    top_k: inputs.TopK = 0,
    excluded: inputs.Excluded = "",
    shared_on: inputs.SharedOn = "",
    servers: inputs.Servers = 1,
    groups: inputs.Groups = 1,
    speeds: inputs.Speeds = "",
    out: Annotated[Path | None, typer.Option("--out", help=outputs.HELP)] = None,
    first_layer: Annotated[int, typer.Option("--first-layer", help="Number of the load's first layer, for .yaml.")] = 0,
    picture: Annotated[Path | None, typer.Option("--picture", help="Write a heat map, before and after, .png.")] = None,
) -> None:
    """Plan a placement; without --current, against experts in order."""
    with inputs.plain_errors():
        window = inputs.load_of(load, slices, part, top_k)
        cluster = inputs.cluster_of(npus, slots, excluded, shared_on, servers, groups, speeds)
        before = inputs.placement_of(current, npus) or Placement.plain(window.layers, window.experts, cluster)
        options = Options(_budget(budget), seed, moves)
        pinned = inputs.pinned_base(before, pin_base) if pin_base else None
        found = plan(window, cluster, before, name=policy, options=options, pinned=pinned)
        tables.print_plan(found)
        if out:
            outputs.save(out, found.placement, window, first_layer)
        if picture:
            panels = (_relative(window, one, cluster) for one in (before, found.placement))
            picture.write_bytes(heat_map(*panels))


@app.command()
def evaluate(
    load: inputs.LoadFile,
    placement: Annotated[Path, typer.Argument(help="A placement, .npz or SGLang's .json.")],
    npus: inputs.Npus,
    slots: inputs.Slots,
    slices: inputs.Slices = inputs.DEFAULT_SLICES,
    part: inputs.Part = "",
    top_k: inputs.TopK = 0,
    picture: Annotated[Path | None, typer.Option("--picture", help="Write a heat map, .png.")] = None,
) -> None:
    """Judge a placement on a load."""
    with inputs.plain_errors():
        window, cluster = inputs.load_of(load, slices, part, top_k), inputs.cluster_of(npus, slots)
        found = inputs.placement_of(placement, npus)
        assert found is not None
        found.check(cluster)
        result = balance(window, found, cluster)
        tables.print_comparison("Placement", [(placement.name, result, None, 0.0, "")])
        if picture:
            picture.write_bytes(heat_map(_relative(window, found, cluster)))


@app.command()
def compare(
    load: inputs.LoadFile,
    npus: inputs.Npus,
    slots: Annotated[str, typer.Option("--slots", help="Routed experts an NPU holds; several, e.g. 8,9,10, compare.")],
    following: Annotated[str, typer.Option("--next", help="Load of the window after it, to judge on.")] = "",
    policies: Annotated[str, typer.Option("--policies", help="Which, separated by commas.")] = "search,greedy",
    budget: BudgetName = "default",
    current: Current = None,
    slices: inputs.Slices = inputs.DEFAULT_SLICES,
    top_k: inputs.TopK = 0,
) -> None:
    """Policies and numbers of slots side by side. Without --next, the last third of the load is held out."""
    with inputs.plain_errors():
        window = inputs.load_of(load, slices, "", top_k)
        window, held = _held_out(window, following, slices, top_k)
        force = inputs.placement_of(current, npus)
        rows = []
        for width in inputs.numbers(slots):
            cluster = Cluster(npus, width)
            before = force or Placement.plain(window.layers, window.experts, cluster)
            redundant = npus * width - window.experts
            for policy in ["none", *policies.split(",")]:
                name = "plain" if policy == "none" and force is None else policy
                row = _row(window, held, cluster, before, policy, budget)
                rows.append((f"{width} slots, {redundant} redundant, {name}", *row))
        tables.print_comparison("Placement", rows)


@app.command()
def convert(
    load: inputs.LoadFile,
    out: Annotated[Path, typer.Argument(help="Where to: .npz, .pt (SGLang), .jsonl (Megatron).")],
    slices: inputs.Slices = 2**27,
    part: inputs.Part = "",
    top_k: inputs.TopK = 0,
) -> None:
    """Convert a load from one format to another."""
    with inputs.plain_errors():
        write_load(out, inputs.load_of(load, slices, part, top_k))


def _budget(name: str) -> Budget:
    if name not in BUDGETS:
        raise Unplannable(f"there is no budget {name!r}; there are {', '.join(BUDGETS)}")
    return BUDGETS[name]


def _held_out(window: LoadWindow, following: str, slices: int, top_k: int) -> tuple[LoadWindow, LoadWindow]:
    if following:
        return window, inputs.load_of(following, slices, "next" if following.startswith("trace:") else "", top_k)
    if window.slices < 3:
        raise Unplannable(f"{window.slices} slices are too few to hold some out; name the next window with --next")
    cut = window.slices - window.slices // 3
    return LoadWindow(window.counts[:cut], window.top_k), window.since(cut)


def _row(
    window: LoadWindow, held: LoadWindow, cluster: Cluster, before: Placement, policy: str, budget: str
) -> tuple[Balance, Balance, float, str]:
    began = time.process_time()
    found = plan(window, cluster, before, name=policy, options=Options(_budget(budget)))
    seconds = time.process_time() - began
    moves = f"{found.placement.moves_from(before).mean():.1f}"
    return balance(window, found.placement, cluster), balance(held, found.placement, cluster), seconds, moves


def _relative(window: LoadWindow, placement: Placement, cluster: Cluster) -> NDArray[np.float64]:
    """[layers, npus]: load in units of even load, mean over slices."""
    shares = npu_shares(window, placement, cluster).mean(0)
    alive = cluster.speed() > 0
    return np.asarray(shares / shares[:, alive].mean(1, keepdims=True))
