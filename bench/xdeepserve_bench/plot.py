"""Draws the curves of a report: seconds against bytes, both logarithmic."""

from __future__ import annotations

from pathlib import Path

from xdeepserve_bench.report import Report


def draw(report: Report, path: Path) -> None:
    """Write an image of the type that the file's name says. Raises ValueError when there is nothing to draw."""
    if not report.curves:
        raise ValueError(f"bench {report.name} has no curves to draw")
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for name, points in report.curves.items():
        sizes, seconds = zip(*points, strict=True)
        axes.loglog(sizes, [1e6 * each for each in seconds], marker="o", label=name)
    axes.set(xlabel="bytes", ylabel="µs, one way (median)", title=f"bench {report.name}")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()
    figure.savefig(path)
