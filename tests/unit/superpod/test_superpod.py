"""Facts of the hardware that placement and the timing model build on."""

from __future__ import annotations

import pytest

from superpod import Chip, Die, Plane, Server, SuperPod, best_plane, timing, transfer_seconds


def server(name: str, chip: Chip, superpod: str = "pod-a", has_roce: bool = True) -> Server:
    return Server(name, superpod, chip, has_roce)


B0, B1 = server("b0", Chip.A910B), server("b1", Chip.A910B)
C0, C1 = server("c0", Chip.A910C), server("c1", Chip.A910C)


def test_a_server_of_each_chip_has_its_number_of_dies() -> None:
    assert [len(s.dies) for s in (B0, C0)] == [8, 16]


def test_cloudmatrix384_has_768_dies() -> None:
    pod = SuperPod("pod-a", tuple(server(f"c{i}", Chip.A910C) for i in range(48)))
    assert len(list(pod.dies())) == 768


def test_dies_are_listed_by_chip_in_a_stable_order() -> None:
    pod = SuperPod("pod-a", (B0, C0))
    assert list(pod.dies(Chip.A910C)) == [Die("c0", i) for i in range(16)]


@pytest.mark.parametrize(
    ("a", "b", "plane"),
    [
        (C0, C1, Plane.UB),
        (C0, C0, Plane.UB),
        (C0, server("x", Chip.A910C, "pod-b"), Plane.ROCE),
        (B0, C0, Plane.ROCE),
        (B0, B1, Plane.ROCE),
        (server("x", Chip.A910B, has_roce=False), C0, Plane.VPC),
    ],
)
def test_best_plane_is_the_fastest_that_both_ends_share(a: Server, b: Server, plane: Plane) -> None:
    assert best_plane(a, b) is plane
    assert best_plane(b, a) is plane


@pytest.mark.parametrize(("plane", "milliseconds"), [(Plane.UB, 5.6), (Plane.ROCE, 36.5), (Plane.VPC, 146)])
def test_kv_of_a_13k_token_prompt_takes_what_the_paper_numbers_imply(plane: Plane, milliseconds: float) -> None:
    kv_bytes_per_token = 70_272
    assert transfer_seconds(plane, 13_000 * kv_bytes_per_token) * 1e3 == pytest.approx(milliseconds, rel=0.01)


def test_ub_reads_are_faster_than_writes_which_is_why_dispatch_pulls() -> None:
    assert timing.UB_READ.value > timing.UB_WRITE.value


def test_a_doubled_or_foreign_server_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="named twice: c0"):
        SuperPod("pod-a", (C0, C0))
    with pytest.raises(ValueError, match="'x' is of 'pod-b'"):
        SuperPod("pod-a", (server("x", Chip.A910C, "pod-b"),))
