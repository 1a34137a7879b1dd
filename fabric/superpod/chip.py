"""The two chips a SuperPod is built of, and what a server of each holds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from superpod import timing


class Chip(StrEnum):
    """An Ascend chip generation; the value is the name that manifests use."""

    A910B = "910B"
    A910C = "910C"


@dataclass(frozen=True)
class ChipSpec:
    """What one server of a chip holds and how it reaches others.

    `hbm_bytes` is per die, None where the sources disagree. `has_ub` says that the server's dies lie on
    the UB plane of their SuperPod.
    """

    chips_per_server: int
    dies_per_chip: int
    hbm_bytes: int | None
    has_ub: bool

    @property
    def dies_per_server(self) -> int:
        return self.chips_per_server * self.dies_per_chip


CHIPS: Final[dict[Chip, ChipSpec]] = {
    Chip.A910B: ChipSpec(chips_per_server=8, dies_per_chip=1, hbm_bytes=None, has_ub=False),
    Chip.A910C: ChipSpec(chips_per_server=8, dies_per_chip=2, hbm_bytes=int(timing.HBM_BYTES.value), has_ub=True),
}
