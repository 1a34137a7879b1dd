"""The benchmark's command, and the ranks that take turns."""

from __future__ import annotations

import json
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from typer.testing import CliRunner

from xdeepserve_bench import xccl, xccl_cases
from xdeepserve_bench.report import Measure, Report
from xdeepserve_bench.xccl_ranks import started

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


@pytest.mark.parametrize(("command", "arguments"), [("xccl", ["bench"]), ("xdeepserve", ["bench", "xccl"])])
@pytest.mark.parametrize(("value", "status"), [(0.5, 0), (1.5, 1)])
def test_both_commands_are_the_same_benchmark(
    command: str, arguments: list[str], value: float, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xccl, "run", lambda quick: Report("xccl", [Measure("p2p", value, "µs", bar=1.0)]))
    scripts = tomllib.loads(PYPROJECT.read_text())["project"]["scripts"]
    module, _, _ = scripts[command].partition(":")
    app = EntryPoint(command, f"{module}:app", "console_scripts").load()
    ran = CliRunner().invoke(app, [*arguments, "--quick", "--json"])
    assert ran.exit_code == status, ran.output
    [measure] = json.loads(ran.stdout)["measures"]
    assert (measure["value"], measure["met"]) == (value, status == 0)


def test_ranks_measure_whenever_they_are_asked_and_say_why_they_fail() -> None:
    with started("p2p", "xccl", 2) as burst:
        for size, count in (("64", 5), ("1048576", 2), ("64", 3)):
            [(what, seconds)] = burst(size, count).items()
            assert (what, len(seconds)) == (size, count)
            assert all(0 < each < 1 for each in seconds)
        with pytest.raises(RuntimeError, match="invalid literal for int"):
            burst("a lot", 1)


def test_a_layer_that_comes_out_wrong_is_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    x = xccl_cases._batch(xccl_cases.Rank("xccl", Path(), 0, 2), 4).x
    with pytest.raises(RuntimeError, match="come out wrong"):
        xccl_cases._timed(lambda: x, lambda: None, x, 1)
