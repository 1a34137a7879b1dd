"""The TE-shell's figures."""

from __future__ import annotations

from flowserve.exposition import family, sample
from flowserve.wire import ShellStatus


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
