"""The files the manifests live in: ``<directory>/<plural>.yaml``, one a kind, nothing else beside them."""

from pathlib import Path

import yaml

from xdeepserve_operator.api.crdgen.manifest import custom_resource_definition
from xdeepserve_operator.api.v1alpha1.kinds import KINDS

HEADER = (
    "# Generated from the types in xdeepserve_operator.api.v1alpha1 by xdeepserve_operator.api.crdgen; do not edit.\n"
)
MAX_BYTES = 64 * 1024  # larger ones break the annotation of client-side apply and Helm's release secret


class _Dumper(yaml.SafeDumper):
    """Writes a part that occurs twice twice, not as an anchor and an alias."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  # PyYAML's signature
        return True


class TooLargeError(ValueError):
    """A manifest above ``MAX_BYTES``."""


def contents() -> dict[str, str]:
    """File name to content, for every kind. Raises TooLargeError for a manifest of 64 KiB or more."""
    files = {}
    for kind in KINDS:
        body = yaml.dump(
            custom_resource_definition(kind), Dumper=_Dumper, sort_keys=False, width=116, allow_unicode=True
        )
        content = HEADER + body
        if (size := len(content.encode())) >= MAX_BYTES:
            raise TooLargeError(
                f"{kind.kind}: {size} bytes, must be below {MAX_BYTES}; take fields out or bulk to a ConfigMap"
            )
        files[f"{kind.plural}.yaml"] = content
    return files


def write(directory: Path) -> None:
    """Writes every manifest into ``directory``, which is made if it is missing."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in contents().items():
        (directory / name).write_text(content, encoding="utf-8")


def differences(directory: Path) -> list[str]:
    """What is wrong with ``directory``, one line a file: missing, stale or foreign; empty when it is up to date."""
    files = contents()
    found = {path.name: path.read_text(encoding="utf-8") for path in sorted(directory.glob("*.yaml"))}
    missing = [f"{directory / name}: missing" for name in files if name not in found]
    stale = [f"{directory / name}: stale" for name, content in found.items() if files.get(name, content) != content]
    foreign = [f"{directory / name}: belongs to no kind" for name in found if name not in files]
    return missing + stale + foreign
