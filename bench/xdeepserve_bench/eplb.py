"""``bench eplb``: how well placements balance load they have not seen, how long planning takes, what must never happen;
and four engines that are balanced while they serve.

The traces are generated, so nothing has to be downloaded. Times are processor seconds of the whole plan, forecast and
checks included; other processes do not lengthen them much.
"""

import statistics

import numpy as np

from eplb import Cluster, Placement, balance
from eplb.plan import Plan, plan
from eplb.policies import Options
from eplb.search import BUDGETS
from eplb.traces.generate import RECIPES, Trace, generate
from xdeepserve_bench import eplb_bars as bars
from xdeepserve_bench import eplb_live
from xdeepserve_bench.eplb_fuzz import LAYERS, Verdict, check
from xdeepserve_bench.eplb_speed import seconds
from xdeepserve_bench.report import Measure, Report

UNIT = "max/mean"
INPUTS, QUICK_INPUTS = 100_000, 4_000
PAPER = bars.CLUSTERS["576on288"]


def run(*, quick: bool) -> Report:
    """Runs it; ``quick`` leaves out all traces but ``paper`` and ``small``, and most random inputs."""
    report = Report("eplb")
    names = ("paper", "small") if quick else tuple(RECIPES)
    for name in names:
        trace = generate(name)
        report.measures += _held_out(name, trace)
        if name == "paper":
            report.measures += [*_paper(trace), *_pinned(trace), *_replan(trace), *_speed(1 if quick else 3)]
    report.measures += eplb_live.run(quick=quick)
    report.measures += _fuzz(QUICK_INPUTS if quick else INPUTS)
    return report


def _held_out(name: str, trace: Trace) -> list[Measure]:
    measures = []
    for config, cluster in bars.CLUSTERS.items():
        if (name, config) not in bars.BEST_PUBLIC:
            continue
        found = plan(trace.fit, cluster).placement
        value = balance(trace.next, found, cluster).mean
        bar = bars.BEST_PUBLIC[name, config] + bars.TIE
        measures.append(Measure(f"{name} {config}, held-out balance", value, UNIT, bar=round(bar, 4)))
    return measures


def _paper(trace: Trace) -> list[Measure]:
    found = plan(trace.fit, PAPER).placement
    fast = plan(trace.fit, PAPER, options=Options(BUDGETS["fast"])).placement
    return [
        Measure("paper 576on288, fit", balance(trace.fit, found, PAPER).mean, UNIT, bar=bars.PAPER_FIT),
        Measure("paper 576on288, held-out", balance(trace.next, found, PAPER).mean, UNIT, bar=bars.PAPER_NEXT),
        Measure("paper 576on288, fast, fit", balance(trace.fit, fast, PAPER).mean, UNIT, bar=bars.VLLM_FIT),
        Measure("paper 576on288, fast, held-out", balance(trace.next, fast, PAPER).mean, UNIT, bar=bars.VLLM_NEXT),
    ]


def _pinned(trace: Trace) -> list[Measure]:
    """Base experts stay on their NPUs, 288 redundant slots: the last 32 NPUs have one slot only."""
    cluster = Cluster(288, [2] * 256 + [1] * 32)
    slots = np.full((trace.fit.layers, 288, 2), -1, np.int32)
    slots[:, :256, 0] = np.arange(256)
    pinned = np.zeros((288, 2), np.bool_)
    pinned[:256, 0] = True
    found = plan(trace.fit, cluster, Placement(slots, 256), pinned=pinned).placement
    return [
        Measure("paper, base pinned, fit", balance(trace.fit, found, cluster).mean, UNIT, bar=bars.PINNED_FIT),
        Measure("paper, base pinned, held-out", balance(trace.next, found, cluster).mean, UNIT, bar=bars.PINNED_NEXT),
    ]


def _replan(trace: Trace) -> list[Measure]:
    first = plan(trace.fit, PAPER).placement
    measures = []
    worse = excess = 0
    for moves, bar in bars.REPLAN.items():
        again = plan(trace.next, PAPER, first, name="incremental", options=Options(moves=moves))
        worse += _worse(again, trace, first)
        excess += int((again.placement.moves_from(first) > moves).sum())
        name = f"paper 576on288, replanned with {moves} moves a layer"
        measures.append(Measure(name, balance(trace.next, again.placement, PAPER).mean, UNIT, bar=bar))
    free = plan(trace.next, PAPER, first)
    worse += _worse(free, trace, first)
    assert free.cost is not None
    return [
        *measures,
        Measure("paper 576on288, replanned freely", free.predicted.mean, UNIT),
        Measure("moves of the free replan", free.cost.moves / trace.fit.layers, "a layer"),
        Measure("layers made worse by a replan", worse, "layers", bar=0),
        Measure("layers with more moves than allowed", excess, "layers", bar=0),
    ]


def _worse(again: Plan, trace: Trace, first: Placement) -> int:
    before, after = (balance(trace.next, one, PAPER).layers for one in (first, again.placement))
    return int((after > before).sum())


def _speed(runs: int) -> list[Measure]:
    return [
        Measure(f"planning 58 layers of 576 slots, {name}", statistics.median(seconds(name, runs)), "s", runs, bar=bar)
        for name, bar in (("default", bars.SECONDS), ("fast", bars.FAST_SECONDS))
    ]


def _fuzz(inputs: int) -> list[Measure]:
    verdicts: list[Verdict] = []
    number = 0
    while LAYERS * sum(not one.refused for one in verdicts) < inputs:
        verdicts.append(check(number))
        number += 1
    planned = [one for one in verdicts if not one.refused]
    total = len(planned) * LAYERS
    return [
        Measure(f"{total} random layers: duplicates", sum(one.duplicates for one in planned), "copies", bar=0),
        Measure(f"{total} random layers: missing experts", sum(one.missing for one in planned), "experts", bar=0),
        Measure(f"{total} random layers: made worse", sum(one.worse for one in planned), "layers", bar=0),
        Measure(f"{total} random layers: limits and pins broken", sum(one.excess for one in planned), "layers", bar=0),
        Measure(f"{total} random layers: idle ones touched", sum(one.idle_changed for one in planned), "layers", bar=0),
        Measure("impossible random clusters, refused with a reason", len(verdicts) - len(planned), "inputs"),
    ]
