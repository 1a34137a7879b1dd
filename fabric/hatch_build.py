"""The wheel's build hook: compiles the C parts before the package is collected, also for an editable install."""

import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))

import native_build


class CustomBuildHook(BuildHookInterface[Any]):
    """Builds ``native_build.TARGETS``; a machine without a compiler gets one as a wheel, or the interpreted way."""

    def dependencies(self) -> list[str]:
        """What the build needs besides hatchling."""
        return [] if native_build.compiler() else ["ziglang>=0.13"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles, and marks the wheel as one for this platform if that worked."""
        if self.target_name != "wheel" or not native_build.build():
            return
        build_data["pure_python"] = False
        build_data["tag"] = _tag()
        if version != "editable":
            build_data["artifacts"] += [str(path.relative_to(native_build.ROOT)) for path in native_build.TARGETS]


def _tag() -> str:
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"cp311-abi3-{platform}"
