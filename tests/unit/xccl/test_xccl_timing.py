"""The timing model against the papers' numbers."""

from __future__ import annotations

import math

import pytest

from superpod.plane import Plane
from xccl import timing, timing_constants
from xccl.paths import Path
from xccl.timing_constants import Constant

US = 1e-6
DISPATCH = {8: 116, 16: 131, 32: 133, 64: 141, 128: 152, 256: 152}
COMBINE = {8: 118, 16: 132, 32: 146, 64: 150, 128: 150, 256: 149}
PAYLOADS = [36 * 1024 * 2**i for i in range(9)]  # 36 KB … 9216 KB


@pytest.mark.parametrize("ranks", DISPATCH)
def test_dispatch_and_combine_as_cloudmatrix_infer_measured_them(ranks: int) -> None:
    assert timing.dispatch(128, ranks) == pytest.approx(DISPATCH[ranks] * US, rel=0.05)
    assert timing.combine(128, ranks) == pytest.approx(COMBINE[ranks] * US, rel=0.05)


def test_payloads_are_those_of_the_table() -> None:
    assert timing.row_bytes(7168, int8=True) == 7680
    assert timing.row_bytes(7168, int8=False) == 14336


@pytest.mark.parametrize("tokens", [4, 8, 16, 24, 31])
def test_at_ep128_dispatch_is_slower_than_combine_below_32_tokens(tokens: int) -> None:
    assert timing.dispatch(tokens, 128) > timing.combine(tokens, 128)


@pytest.mark.parametrize("tokens", [33, 40, 48, 64, 96, 128])
def test_at_ep128_dispatch_is_faster_than_combine_above_32_tokens(tokens: int) -> None:
    assert timing.dispatch(tokens, 128) < timing.combine(tokens, 128)


def test_a2e_and_e2a_of_160_attention_and_288_expert_dies() -> None:
    assert timing.a2e(96, 160, 288) == pytest.approx(172 * US, rel=0.05)
    assert timing.e2a(96, 160, 288) == pytest.approx(193 * US, rel=0.05)


@pytest.mark.parametrize("nbytes", [*(each for each in PAYLOADS if each < 10**6), 10**6])
def test_less_than_a_megabyte_takes_less_than_20_us_with_two_aivs(nbytes: int) -> None:
    assert timing.send(nbytes, aivs=2) < 20 * US


def test_nine_megabytes_are_faster_with_48_aivs_than_with_2() -> None:
    assert timing.send(PAYLOADS[-1], aivs=2) > 2.5 * timing.send(PAYLOADS[-1], aivs=48)
    assert timing.send(PAYLOADS[-1], aivs=48) > 48 * US  # the link's peak


def test_more_aivs_never_slow_a_send_down() -> None:
    times = [timing.send(PAYLOADS[-1], aivs=aivs) for aivs in range(2, 49)]
    assert times == sorted(times, reverse=True)


def test_dma_starts_later_and_overtakes_two_aivs() -> None:
    small, large = PAYLOADS[0], PAYLOADS[-1]
    assert timing.send(small, path=Path.DMA) > timing.send(small)
    assert timing.send(large, path=Path.DMA) < timing.send(large)


@pytest.mark.parametrize(("plane", "milliseconds"), [(Plane.UB, 5.6), (Plane.ROCE, 36.5), (Plane.VPC, 146)])
def test_the_kv_of_13k_tokens(plane: Plane, milliseconds: float) -> None:
    assert timing.send(13_000 * 70_272, path=Path.ZERO_COPY, plane=plane) == pytest.approx(milliseconds / 1e3, rel=0.02)


def test_one_sided_operations_as_measured() -> None:
    assert timing.read(512) == pytest.approx(1.9 * US, rel=0.01)
    assert timing.write(512) == pytest.approx(2.1 * US, rel=0.01)
    assert timing.read(512, same_server=True) == pytest.approx(1.2 * US, rel=0.01)
    assert timing.write(512, same_server=True) == pytest.approx(1.3 * US, rel=0.01)
    assert timing.read(10**9) < timing.write(10**9)  # the reason for pulling


def test_a_slower_plane_costs_more() -> None:
    for operation in (timing.dispatch, timing.combine):
        times = [operation(96, 64, plane=plane) for plane in (Plane.UB, Plane.ROCE, Plane.VPC)]
        assert times == sorted(times)
        assert times[0] < times[1] < times[2]


def test_few_aivs_slow_an_exchange_down() -> None:
    assert timing.dispatch(128, 64, aivs=2) > timing.dispatch(128, 64, aivs=8) == timing.dispatch(128, 64)


def test_without_owned_dies_there_is_one_hop() -> None:
    assert timing.a2e(96, 160, 160) < timing.a2e(96, 160, 161) - timing_constants.FORWARDING.value / 2
    assert timing.e2a(96, 160, 160) < timing.e2a(96, 160, 161) - timing_constants.FORWARDING.value / 2


def test_a_vote_is_a_barrier_without_rows() -> None:
    assert 0 < timing.vote(8) < timing.vote(64) == timing.vote(512)


def test_every_constant_says_where_it_comes_from() -> None:
    constants = [each for each in vars(timing_constants).values() if isinstance(each, Constant)]
    assert len(constants) >= 15
    assert all(each.why and math.isfinite(each.value) and each.value > 0 for each in constants)
