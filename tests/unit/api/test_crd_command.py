"""``python -m xdeepserve_operator.api.crdgen`` writes, compares and names what differs."""

from pathlib import Path

import pytest
import yaml

from xdeepserve_operator.api.crdgen import files
from xdeepserve_operator.api.crdgen.__main__ import main
from xdeepserve_operator.api.v1alpha1.kinds import KINDS


def test_it_writes_one_file_a_kind_into_every_directory(tmp_path: Path) -> None:
    directories = [tmp_path / "crds", tmp_path / "chart" / "templates"]
    assert main([str(directory) for directory in directories]) == 0
    for directory in directories:
        assert {path.stem for path in directory.iterdir()} == {kind.plural for kind in KINDS}
    assert main(["--check", *map(str, directories)]) == 0


def test_a_check_names_every_difference_and_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files.write(tmp_path)
    (tmp_path / "superpods.yaml").unlink()
    (tmp_path / "dpgroups.yaml").write_text("kind: Old\n", encoding="utf-8")
    (tmp_path / "removed.yaml").write_text("kind: Gone\n", encoding="utf-8")
    assert main(["--check", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert f"{tmp_path}/superpods.yaml: missing" in said
    assert f"{tmp_path}/dpgroups.yaml: stale" in said
    assert f"{tmp_path}/removed.yaml: belongs to no kind" in said
    assert f"run python -m xdeepserve_operator.api.crdgen {tmp_path}" in said
    assert (tmp_path / "dpgroups.yaml").read_text(encoding="utf-8") == "kind: Old\n"


def test_a_crd_that_outgrew_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_BYTES", 10_000)
    with pytest.raises(files.TooLargeError, match="bytes, must be below 10000"):
        files.contents()


def test_files_are_plain_yaml_without_anchors() -> None:
    for content in files.contents().values():
        assert "&id" not in content
        assert yaml.safe_load(content)["kind"] == "CustomResourceDefinition"
