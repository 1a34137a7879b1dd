"""How much memory a pod takes, read from /proc.

``alone`` is what it would take if nothing else ran on the machine: pages of a file or a shared segment count once,
however many of its processes map them, and in full, whoever outside maps them too. ``resident`` is the sum of RSS, in
which such a page counts as often as it is mapped.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

# The first line of a mapping in smaps: addresses, permissions, offset, device, inode, path.
_MAPPING = re.compile(r"[0-9a-f]+-[0-9a-f]+ \S+ (?P<offset>[0-9a-f]+) (?P<device>\S+) (?P<inode>\d+)")
_SIZES = ("Rss", "Pss", "Anonymous")  # in this order, among others


@dataclass(frozen=True)
class Memory:
    """In bytes, of the processes of one pod."""

    alone: int = 0
    resident: int = 0

    def most(self, other: Memory) -> Memory:
        """The larger of each."""
        return Memory(max(self.alone, other.alone), max(self.resident, other.resident))


class Mapping(NamedTuple):
    """One of a process; sizes in KiB. ``place`` is equal where two processes map the same pages of a file."""

    place: tuple[str, str, str]
    rss: int
    pss: int
    anonymous: int


def memory(pids: Iterable[int]) -> Memory:
    """Of the processes of one pod; those that are gone count nothing. It costs each of them some milliseconds."""
    private, resident = 0, 0
    files: dict[tuple[str, str, str], int] = defaultdict(int)
    for pid in pids:
        try:
            smaps = Path(f"/proc/{pid}/smaps").read_text()
        except OSError:
            continue
        for mapping in mappings(smaps):
            resident += mapping.rss
            of_file = mapping.rss - mapping.anonymous
            # Anonymous pages that a fork left shared are within the pod, so that their parts sum up to one.
            private += mapping.anonymous if of_file else mapping.pss
            files[mapping.place] = max(files[mapping.place], of_file)
    return Memory(1024 * (private + sum(files.values())), 1024 * resident)


def mappings(smaps: str) -> Iterator[Mapping]:
    """What the text of a process' smaps says."""
    place, sizes = ("", "", ""), list[int]()
    for line in smaps.splitlines():
        name, _, rest = line.partition(":")
        if head := _MAPPING.match(line):
            place, sizes = (head["device"], head["inode"], head["offset"]), []
        elif name in _SIZES:
            sizes.append(int(rest.split()[0]))
            if len(sizes) == len(_SIZES):
                yield Mapping(place, *sizes)
