"""The committed CRDs are what the types generate, in ``crds/`` and in the chart."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from xdeepserve_operator.api.crdgen.files import MAX_BYTES, contents, differences


@pytest.mark.parametrize("directory", ["crds", "helm/xdeepserve-crds/templates"])
def test_the_committed_files_are_up_to_date(root: Path, directory: str) -> None:
    assert differences(root / directory) == []


@pytest.mark.parametrize("name", sorted(contents()))
def test_every_crd_is_small(name: str) -> None:
    assert len(contents()[name].encode()) < MAX_BYTES


def test_the_chart_renders_every_crd_unchanged(root: Path, render: Any) -> None:
    rendered = {document["metadata"]["name"]: document for document in render("xdeepserve-crds")}
    committed = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in (root / "crds").glob("*.yaml")]
    assert rendered == {document["metadata"]["name"]: document for document in committed}
