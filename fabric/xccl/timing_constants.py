"""The numbers of `xccl.timing` that are XCCL's own; those of the hardware lie in `superpod.timing`.

Source tags: `P` a paper says so (xDeepServe, arXiv 2508.02520; CloudMatrix-Infer, arXiv 2506.12708); `D` derived from
the papers' own numbers; `fit` chosen so that the model meets the papers' points, see `why`; `?` not stated anywhere:
a setting, to be replaced by whoever has measured it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from superpod import timing

Source = Literal["P", "D", "fit", "?"]


@dataclass(frozen=True)
class Constant:
    """One number, its unit, and where it comes from."""

    value: float
    unit: Literal["B", "B/s", "s", "ranks", "cores"]
    source: Source
    why: str


AIVS: Final = Constant(48, "cores", "P", "vector cores of a die")

P2P_START: Final = Constant(
    2 * timing.UB_WRITE_LATENCY.value, "s", "D", "a small write to publish tailPtr and one for ACK"
)
AIV_RATE: Final = Constant(
    34.5e9,
    "B/s",
    "fit",
    "what one AIV moves: below 1 MB 2 AIVs must stay under 20 µs (more than 31.6e9), and 9216 KB must be at least 2.5 "
    "times slower with 2 AIVs than with 48 (less than 37e9)",
)
P2P_LINK: Final = Constant(
    timing.UB_PEAK.value,
    "B/s",
    "fit",
    "the link's peak: with the 135 GB/s of a write no AIV_RATE meets both statements",
)
DMA_START: Final = Constant(10e-6, "s", "?", "the papers say that DMA starts later than MTE, not by how much")

TOKEN_SCALES: Final = Constant(512, "B", "P", "the slot of a token's INT8 scales, which travels with it")
QUANTISE_TOKEN: Final = Constant(
    0.3153e-6,
    "s",
    "fit",
    "quantising one token for its experts: makes dispatch slower than combine below 32 tokens a die at EP128, faster "
    "above",
)
DISPATCH_BASE: Final = Constant(28.8e-6, "s", "fit", "start of dispatch at EP8: 116 µs with 128 tokens a rank")
DISPATCH_DOUBLING: Final = Constant(8.5e-6, "s", "fit", "more for each doubling of the ranks beyond 8")
DISPATCH_SATURATION: Final = Constant(128, "ranks", "fit", "beyond it the table grows no more")
COMBINE_BASE: Final = Constant(29.5e-6, "s", "fit", "start of combine at EP8: 118 µs with 128 tokens a rank")
COMBINE_DOUBLING: Final = Constant(11e-6, "s", "fit", "more for each doubling of the ranks beyond 8")
COMBINE_SATURATION: Final = Constant(64, "ranks", "fit", "beyond it the table grows no more")
FORWARDING: Final = Constant(
    22e-6,
    "s",
    "fit",
    "what the second hop of a trampoline costs besides its bytes: meets 172 µs of A2E and 193 µs of E2A",
)

ROCE_LATENCY: Final = Constant(5e-6, "s", "?", "a small write on RoCE")
VPC_LATENCY: Final = Constant(50e-6, "s", "?", "a small write between servers on VPC")
