"""The TE-shell's figures."""

from __future__ import annotations

from flowserve.exposition import counter, gauge, page
from flowserve.wire import ShellStatus
from flowserve.wire_experts import ExpertHistory


def render_experts(status: ShellStatus, history: ExpertHistory) -> str:
    """Where experts are, what moving them took, and how evenly the ranks were loaded in the last interval."""
    said = [(str(report.rank), report.status.experts) for report in status.ranks if report.status]
    figures = (
        ("placement_version", gauge, "Version of the placement of experts in force.", "version"),
        ("placement_given_up", gauge, "Highest version that was given up in this epoch.", "given_up"),
        ("swaps_total", counter, "Changes of placement that were taken up.", "swaps"),
        ("swaps_given_up_total", counter, "Changes of placement that were given up and rolled back.", "stalls"),
        ("moved_bytes_total", counter, "Weights that were fetched.", "moved_bytes"),
        ("swap_seconds", gauge, "What the last change took.", "swap_seconds"),
    )
    by_rank = [
        kind(
            f"xdeepserve:expert_{name}",
            text,
            ("instance", "rank"),
            [((status.instance, rank), getattr(one, field)) for rank, one in said],
        )
        for name, kind, text, field in figures
    ]
    last = history.slices[-1].served if history.slices else ()
    layers = [
        ((status.instance, str(layer)), max(loads) * len(loads) / sum(loads))
        for layer, loads in zip(history.layers, zip(*last, strict=True), strict=False)
        if any(loads)
    ]
    text = "Load of the busiest rank over the mean, of a layer in the last interval; 1 is even."
    return page([*by_rank, gauge("xdeepserve:expert_imbalance", text, ("instance", "layer"), layers)])


def render(status: ShellStatus) -> str:
    """What the shell knows of its instance."""
    of_all, ready = [status.instance], int(status.ready)
    silence = [((status.instance, str(report.rank)), report.silent_seconds) for report in status.ranks]
    return page(
        (
            gauge("xdeepserve:instance_ready", "1 if every member serves.", ("instance",), [(of_all, ready)]),
            gauge(
                "xdeepserve:epoch", "Epoch of the membership that is spread.", ("instance",), [(of_all, status.epoch)]
            ),
            gauge(
                "xdeepserve:rank_silent_seconds", "Seconds since a rank last answered.", ("instance", "rank"), silence
            ),
        )
    )
