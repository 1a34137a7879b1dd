"""``xdeepserve eplb``: from a recording to a table, a plan and a picture."""

import json
import zlib
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from xdeepserve_cli.eplb.commands import app
from xdeepserve_operator.planner.expert_map import Map

AT = ["--npus", "4", "--slots", "5"]


def run(*arguments: str, ok: bool = True) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == (0 if ok else 2), result.output
    return result.output


def test_a_plan_is_written_evaluated_and_drawn(tmp_path: Path) -> None:
    plan, picture = tmp_path / "plan.npz", tmp_path / "plan.png"
    shown = run("plan", "trace:small", *AT, "--out", str(plan), "--picture", str(picture))
    assert "layers changed: 4 of 4" in shown
    assert "GB" in shown
    assert "plan.npz" in run("evaluate", "trace:small", str(plan), *AT, "--part", "next")
    png = picture.read_bytes()
    assert png.startswith(b"\x89PNG")
    length = int.from_bytes(png[33:37], "big")
    width, height = (int.from_bytes(png[at : at + 4], "big") for at in (16, 20))
    assert len(zlib.decompress(png[41 : 41 + length])) == height * (3 * width + 1)


def test_a_plan_for_sglang_is_its_json(tmp_path: Path) -> None:
    run("plan", "trace:small", *AT, "--out", str(tmp_path / "plan.json"))
    table = json.loads((tmp_path / "plan.json").read_text())["physical_to_logical_map"]
    assert (len(table), len(table[0])) == (4, 20)


def test_a_placement_of_sglang_can_be_the_one_in_force(tmp_path: Path) -> None:
    plan = str(tmp_path / "plan.json")
    run("plan", "trace:small", *AT, "--out", plan)
    assert "layers changed: 0 of 4" in run("plan", "trace:small", *AT, "--current", plan, "--policy", "none")
    assert "plan.json" in run("evaluate", "trace:small", plan, *AT)
    (tmp_path / "plan.json").write_text('{"physical_to_logical_map": [[0, 1, 2]]}')
    assert "for 4 NPUs" in run("evaluate", "trace:small", plan, *AT, ok=False)


def test_a_plan_for_a_cluster_is_a_config_map_that_the_operator_reads(tmp_path: Path) -> None:
    run("plan", "trace:small", *AT, "--out", str(tmp_path / "mine.yaml"), "--first-layer", "3")
    manifest = yaml.safe_load((tmp_path / "mine.yaml").read_text())
    assert manifest["metadata"] == {"name": "mine", "labels": {"app.kubernetes.io/managed-by": "xdeepserve"}}
    kept = Map.parse([manifest["data"]["map.json"]])
    assert (sorted(kept.layers), kept.experts, kept.ranks, kept.missing()) == ([3, 4, 5, 6], 16, 4, 0)
    assert "cannot name a ConfigMap" in run("plan", "trace:small", *AT, "--out", str(tmp_path / "M.yaml"), ok=False)


def test_limits_pins_and_a_placement_in_force(tmp_path: Path) -> None:
    first, second = str(tmp_path / "first.npz"), str(tmp_path / "second.npz")
    run("plan", "trace:small", *AT, "--out", first)
    run("plan", "trace:small", *AT, "--part", "next", "--current", first, "--moves", "2", "--out", second)
    assert "layers changed" in run("plan", "trace:small", *AT, "--current", second, "--pin-base", "3")
    assert "layers changed" in run("plan", "trace:small", *AT, "--current", second, "--speeds", "0=0.5,3=2")


def test_slots_are_compared_on_load_held_out() -> None:
    shown = run("compare", "trace:small", "--npus", "4", "--slots", "4-6")
    assert all(f"{slots} slots" in shown for slots in (4, 5, 6))
    assert "trace" not in run("compare", "trace:small", "--npus", "4", "--slots", "5", "--next", "trace:small")


def test_formats_are_converted(tmp_path: Path) -> None:
    for name in ("load.pt", "load.jsonl", "load.npz"):
        run("convert", "trace:small", str(tmp_path / name))
        assert "8 slices, 4 layers, 16 experts" in run("show", str(tmp_path / name), "--top-k", "2")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["plan", "absent.npz", *AT], "No such file"),
        (["plan", "trace:small", "--npus", "4", "--slots", "3"], "do not fit"),
        (["plan", "trace:small", "--npus", "4", "--slots", "many"], "neither a number"),
        (["plan", "trace:small", *AT, "--budget", "endless"], "no budget"),
        (["plan", "trace:small", *AT, "--excluded", "x"], "no list of numbers"),
        (["plan", "trace:small", *AT, "--speeds", "1:0.5"], "not like 3=0.6"),
        (["plan", "trace:small", *AT, "--speeds", "4=0.5"], "names NPU 4; there are 4"),
        (["plan", "trace:small", "--npus", "4", "--slots", "5x3"], "names 3 NPUs of 4"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], reason: str) -> None:
    shown = run(*arguments, ok=False)
    assert reason in " ".join(shown.replace("│", " ").split())
    assert "Traceback" not in shown
