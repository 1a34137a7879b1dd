"""Compiles the C parts with whatever C compiler there is: `python fabric/native_build.py`, and the wheel's build.

A compiler is wanted, not needed: without one everything works in its interpreted way, only slower. Where none is
installed the build asks for `ziglang`, a compiler that comes as a wheel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGETS = {
    ROOT / "fabric/xccl/_native.abi3.so": sorted((ROOT / "fabric/xccl/native").glob("*.c")),
    ROOT / "dataplane/flowserve/model/_native.abi3.so": sorted((ROOT / "dataplane/flowserve/model/native").glob("*.c")),
}
"""The extension modules, each with its sources."""
FLAGS = ("-O3", "-std=c11", "-Wall", "-Wextra", "-shared", "-fPIC", "-fvisibility=hidden", "-D_GNU_SOURCE")


def compiler() -> list[str] | None:
    """The command of a C compiler: $CC, the system's, or the one in the wheel `ziglang`."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and shutil.which(name):
            return [name]
    return [sys.executable, "-m", "ziglang", "cc"] if find_spec("ziglang") else None


def build() -> bool:
    """Compile all of TARGETS; False, with a word on standard error, when that cannot be done here."""
    command = compiler()
    if command is None:
        print("no C compiler found; the interpreted way will be used", file=sys.stderr)
        return False
    done = [_compile(command, sources, target) for target, sources in TARGETS.items()]
    return all(done)


def _compile(command: list[str], sources: list[Path], target: Path) -> bool:
    include = sysconfig.get_paths()["include"]
    fresh = target.with_suffix(f".{os.getpid()}")  # whoever has the old one mapped keeps it
    ran = subprocess.run(
        [*command, *FLAGS, f"-I{include}", f"-I{ROOT / 'fabric'}", *map(str, sources), "-o", str(fresh), "-lm"],
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        print(f"{target.name} does not compile, the interpreted way will be used:\n{ran.stderr}", file=sys.stderr)
        fresh.unlink(missing_ok=True)
        return False
    fresh.replace(target)
    return True


if __name__ == "__main__":
    sys.exit(not build())
