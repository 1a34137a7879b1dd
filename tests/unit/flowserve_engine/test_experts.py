"""Experts are spread evenly and completely over any number of ranks."""

from __future__ import annotations

import pytest

from flowserve.engine.experts import owned, owners


@pytest.mark.parametrize(("experts", "ranks"), [(16, 1), (16, 2), (16, 3), (256, 288), (7, 4)])
def test_every_expert_has_one_owner_and_loads_differ_by_one(experts: int, ranks: int) -> None:
    shares = [owned(experts, ranks, rank) for rank in range(ranks)]
    assert sorted(expert for share in shares for expert in share) == list(range(experts))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert all(owners(experts, ranks)[expert] == rank for rank, share in enumerate(shares) for expert in share)
