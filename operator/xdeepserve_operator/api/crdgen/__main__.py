"""``python -m xdeepserve_operator.api.crdgen [--check] DIRECTORY...``: writes the CRDs, or says where they differ."""

import argparse
import sys
from pathlib import Path

from xdeepserve_operator.api.crdgen.files import differences, write


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0, or 1 when ``--check`` finds a difference; the differences go to standard error."""
    parser = argparse.ArgumentParser(prog="python -m xdeepserve_operator.api.crdgen", description="Generate the CRDs.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a file is not up to date")
    parser.add_argument("directories", nargs="+", type=Path, metavar="DIRECTORY", help="where the YAML files live")
    options = parser.parse_args(arguments)
    if not options.check:
        for directory in options.directories:
            write(directory)
        return 0
    found = [line for directory in options.directories for line in differences(directory)]
    for line in found:
        print(line, file=sys.stderr)
    if found:
        print(f"to bring them up to date, run {parser.prog} {' '.join(map(str, options.directories))}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
