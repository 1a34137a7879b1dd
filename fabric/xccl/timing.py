"""What XCCL's operations cost on the papers' hardware, in seconds: a model beside the real execution.

Every function is `start + bytes / rate`, with the start and the rate of the operation, on an idle plane and with ranks
that are ready: skew, stragglers and contention come on top. Constants and their sources: `timing_constants`.

one-sided     latency and bandwidth of the plane, as measured for 512 B and in bulk
p2p           a fit, `start + bytes / min(n × AIV, link)`: no digitised curve exists, only the statements that less than
              1 MB takes less than 20 µs with 2 AIVs, and that 9216 KB is more than 2.5 times faster with 48 than with 2
all-to-all    a fit to CloudMatrix-Infer's table (EP8…EP256, 128 tokens a rank) and to xDeepServe's statement that at
              EP128 dispatch is slower than combine below 32 tokens a die and faster above. The table was measured on
              push-based operators, the statement on pull-based ones; the model does not tell them apart. It meets
              both, but says little about how far dispatch and combine lie apart: here it is never a microsecond at
              EP128, since in the table they hardly differ at 128 tokens.
A2E, E2A      the all-to-all's starts, the bytes of both hops, and one fitted number for the second hop; the papers
              measured it with trampolines only
"""

from __future__ import annotations

import math
from typing import Final

from superpod import timing as hardware
from superpod.plane import Plane, transfer_seconds
from xccl import timing_constants as constants
from xccl.a2e_plan import Plan
from xccl.paths import Path

HIDDEN: Final = 7168
TOP_K: Final = 8
_BF16: Final = 2
_ALL_AIVS: Final = int(constants.AIVS.value)

_LATENCY: Final = {
    Plane.UB: hardware.UB_WRITE_LATENCY.value,
    Plane.ROCE: constants.ROCE_LATENCY.value,
    Plane.VPC: constants.VPC_LATENCY.value,
}


def row_bytes(hidden: int, *, int8: bool) -> int:
    """What one token takes on its way to one expert: INT8 with its scales, or BF16."""
    return hidden + int(constants.TOKEN_SCALES.value) if int8 else hidden * _BF16


def read(nbytes: int, *, plane: Plane = Plane.UB, same_server: bool = False) -> float:
    """One die reads `nbytes` of another's memory."""
    if plane is not Plane.UB:
        return _LATENCY[plane] + transfer_seconds(plane, nbytes)
    if same_server:
        return hardware.UB_READ_LOCAL_LATENCY.value + nbytes / hardware.UB_READ_LOCAL.value
    return hardware.UB_READ_LATENCY.value + nbytes / hardware.UB_READ.value


def write(nbytes: int, *, plane: Plane = Plane.UB, same_server: bool = False) -> float:
    """One die writes `nbytes` into another's memory."""
    if plane is not Plane.UB:
        return _LATENCY[plane] + transfer_seconds(plane, nbytes)
    if same_server:
        return hardware.UB_WRITE_LOCAL_LATENCY.value + nbytes / hardware.UB_WRITE_LOCAL.value
    return hardware.UB_WRITE_LATENCY.value + nbytes / hardware.UB_WRITE.value


def send(nbytes: int, *, aivs: int = 2, path: Path = Path.MTE, plane: Plane = Plane.UB) -> float:
    """A send and its receive, from the call until the sender has its ACK; `aivs` counts on the MTE path only."""
    start = constants.P2P_START.value if plane is Plane.UB else 2 * _LATENCY[plane]
    match path:
        case Path.MTE:
            link = constants.P2P_LINK.value if plane is Plane.UB else _bandwidth(plane)
            return start + nbytes / min(aivs * constants.AIV_RATE.value, link)
        case Path.DMA:
            link = hardware.UB_WRITE.value if plane is Plane.UB else _bandwidth(plane)
            return start + constants.DMA_START.value + nbytes / link
        case Path.ZERO_COPY:
            return start + transfer_seconds(plane, nbytes)


def vote(ranks: int) -> float:
    """A full barrier that carries a word: a combine without tokens."""
    return combine(0, ranks)


def dispatch(
    tokens: int,
    ranks: int,
    *,
    hidden: int = HIDDEN,
    top_k: int = TOP_K,
    int8: bool = True,
    aivs: int = _ALL_AIVS,
    plane: Plane = Plane.UB,
) -> float:
    """Every rank sends `tokens` tokens to `top_k` experts each, evenly spread over `ranks`."""
    nbytes = tokens * top_k * row_bytes(hidden, int8=int8)
    quantising = tokens * _quantise(hidden, top_k) if int8 else 0.0
    return _dispatch_start(ranks, plane) + quantising + nbytes / _rate(aivs, plane)


def combine(
    tokens: int,
    ranks: int,
    *,
    hidden: int = HIDDEN,
    top_k: int = TOP_K,
    aivs: int = _ALL_AIVS,
    plane: Plane = Plane.UB,
) -> float:
    """Every rank gets the results of `tokens` tokens back, `top_k` BF16 rows each, and sums them."""
    nbytes = tokens * top_k * row_bytes(hidden, int8=False)
    return _combine_start(ranks, plane) + nbytes / _rate(aivs, plane)


def a2e(tokens: int, attention: int, experts: int, *, hidden: int = HIDDEN, top_k: int = TOP_K) -> float:
    """`attention` dies send `tokens` tokens each to `experts` dies on UB, in INT8, by way of trampolines."""
    rows = tokens * top_k * attention / experts
    nbytes = rows * row_bytes(hidden, int8=True)
    start = _dispatch_start(attention, Plane.UB) + tokens * _quantise(hidden, top_k)
    return start + _two_hops(Plan.with_trampolines(attention, experts), nbytes, nbytes)


def e2a(tokens: int, attention: int, experts: int, *, hidden: int = HIDDEN, top_k: int = TOP_K) -> float:
    """The way back of `a2e`, in BF16: owned dies to trampolines, trampolines to attention dies."""
    row = row_bytes(hidden, int8=False)
    rows = tokens * top_k * attention / experts
    plan = Plan.with_trampolines(attention, experts)
    start = _combine_start(attention, Plane.UB)
    forwarded = _owned_dies(plan) * rows * row / hardware.UB_READ.value
    return start + forwarded + _forwarding(plan) + tokens * top_k * row / hardware.UB_READ.value


def _two_hops(plan: Plan, own: float, each_owned: float) -> float:
    """A trampoline pulls its own rows and those of the dies that it owns; these pull theirs from it."""
    owned = _owned_dies(plan)
    second = each_owned / hardware.UB_READ.value if owned else 0.0
    return (own + owned * each_owned) / hardware.UB_READ.value + second + _forwarding(plan)


def _owned_dies(plan: Plan) -> int:
    """The most dies that one trampoline owns."""
    return len(plan.owned(0))


def _forwarding(plan: Plan) -> float:
    return constants.FORWARDING.value if _owned_dies(plan) else 0.0


def _quantise(hidden: int, top_k: int) -> float:
    """Seconds a token, in proportion to the values that the fit was made with."""
    return constants.QUANTISE_TOKEN.value * hidden * top_k / (HIDDEN * TOP_K)


def _dispatch_start(ranks: int, plane: Plane) -> float:
    doublings = _doublings(ranks, constants.DISPATCH_SATURATION.value)
    return constants.DISPATCH_BASE.value + constants.DISPATCH_DOUBLING.value * doublings + _slower_start(plane)


def _combine_start(ranks: int, plane: Plane) -> float:
    doublings = _doublings(ranks, constants.COMBINE_SATURATION.value)
    return constants.COMBINE_BASE.value + constants.COMBINE_DOUBLING.value * doublings + _slower_start(plane)


def _doublings(ranks: int, saturation: float) -> float:
    return max(0.0, math.log2(min(ranks, saturation) / 8))


def _slower_start(plane: Plane) -> float:
    """The fits were made on UB; another plane's metadata takes longer to arrive."""
    return _LATENCY[plane] - _LATENCY[Plane.UB]


def _rate(aivs: int, plane: Plane) -> float:
    return min(aivs * constants.AIV_RATE.value, _bandwidth(plane))


def _bandwidth(plane: Plane) -> float:
    return 1e9 / transfer_seconds(plane, 10**9)
