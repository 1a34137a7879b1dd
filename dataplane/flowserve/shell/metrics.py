"""The TE-shell's figures."""

from __future__ import annotations

from typing import Literal

from flowserve.exposition import family, sample
from flowserve.wire import ShellStatus
from flowserve.wire_experts import ExpertHistory


def render_experts(status: ShellStatus, history: ExpertHistory) -> str:
    """Where experts are, what moving them took, and how evenly the ranks were loaded in the last interval."""
    instance = {"instance": status.instance}
    said = [(report.rank, report.status.experts) for report in status.ranks if report.status]
    figures: tuple[tuple[str, Literal["gauge", "counter"], str, str], ...] = (
        ("placement_version", "gauge", "Version of the placement of experts in force.", "version"),
        ("placement_given_up", "gauge", "Highest version that was given up in this epoch.", "given_up"),
        ("swaps_total", "counter", "Changes of placement that were taken up.", "swaps"),
        ("swaps_given_up_total", "counter", "Changes of placement that were given up and rolled back.", "stalls"),
        ("moved_bytes_total", "counter", "Weights that were fetched.", "moved_bytes"),
        ("swap_seconds", "gauge", "What the last change took.", "swap_seconds"),
    )
    families = [
        family(
            f"xdeepserve:expert_{name}",
            kind,
            text,
            [
                sample(f"xdeepserve:expert_{name}", {**instance, "rank": rank}, getattr(one, field))
                for rank, one in said
            ],
        )
        for name, kind, text, field in figures
    ]
    last = history.slices[-1].served if history.slices else ()
    name = "xdeepserve:expert_imbalance"
    text = "Load of the busiest rank over the mean, of a layer in the last interval; 1 is even."
    layers = [
        sample(name, {**instance, "layer": layer}, max(loads) * len(loads) / sum(loads))
        for layer, loads in zip(history.layers, zip(*last, strict=True), strict=False)
        if any(loads)
    ]
    return "".join([*families, family(name, "gauge", text, layers)])


def render(status: ShellStatus) -> str:
    """What the shell knows of its instance."""
    instance = {"instance": status.instance}
    silence = [
        sample("xdeepserve:rank_silent_seconds", {**instance, "rank": report.rank}, report.silent_seconds)
        for report in status.ranks
    ]
    ready, epoch = "xdeepserve:instance_ready", "xdeepserve:epoch"
    return "".join(
        (
            family(ready, "gauge", "1 if every member serves.", [sample(ready, instance, int(status.ready))]),
            family(epoch, "gauge", "Epoch of the membership that is spread.", [sample(epoch, instance, status.epoch)]),
            family("xdeepserve:rank_silent_seconds", "gauge", "Seconds since a rank last answered.", silence),
        )
    )
