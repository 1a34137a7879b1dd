"""``docs/structure.md`` names every package, and no file that is not there."""

import re
from pathlib import Path

PRODUCT = ("operator", "dataplane", "fabric", "cluster", "e2e", "bench")
BASES = (  # what paths in it are relative to
    *("", "operator", "operator/xdeepserve_operator", "operator/xdeepserve_operator/controllers"),
    *("operator/xdeepserve_cli", "dataplane", "dataplane/flowserve", "dataplane/eplb"),
)


def test_every_package_is_named(root: Path) -> None:
    text = (root / "docs/structure.md").read_text(encoding="utf-8")
    packages = [one.parent for name in PRODUCT for one in (root / name).rglob("__init__.py")]
    assert [str(one) for one in packages if f"`{one.name}`" not in text and f"/{one.name}/`" not in text] == []


def test_every_file_that_is_named_is_there(root: Path) -> None:
    text = (root / "docs/structure.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w./-]+(?:\.py|/))`", text)
    assert len(named) > 40
    assert [path for path in named if not any((root / base / path).exists() for base in BASES)] == []
