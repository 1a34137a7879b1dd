"""Regions are used again, grow with what they must hold, and are given up when a transfer fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from flowserve.transfer.staging import SMALLEST, Staging
from xccl import Endpoint, Layout


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    with Endpoint.create(tmp_path, "prefill", Layout(max_peers=2, max_tokens=2, hidden=2, top_k=1)) as endpoint:
        yield endpoint


def regions(endpoint: Endpoint) -> list[int]:
    return list(endpoint.regions)


def test_rows_lie_in_a_region_from_which_they_can_be_read(endpoint: Endpoint) -> None:
    with Staging(endpoint).rows((2, 3, 5)) as rows:
        assert (rows.shape, rows.dtype) == ((2, 3, 5), np.float32)
        reference = endpoint.reference(rows.reshape(-1).view(np.uint8).data)
        assert reference is not None
        assert reference.nbytes == rows.nbytes


def test_a_region_serves_every_transfer_that_fits(endpoint: Endpoint) -> None:
    staging = Staging(endpoint)
    for tokens in (1, 100, 7, 0):
        with staging.rows((2, tokens, 4)) as rows:
            rows[:] = tokens
    assert regions(endpoint) == [0]


def test_the_largest_region_stays_and_the_others_go(endpoint: Endpoint) -> None:
    staging = Staging(endpoint)
    with staging.rows((SMALLEST,)), staging.rows((1,)), staging.rows((2,)):
        assert regions(endpoint) == [0, 1, 2]
    assert regions(endpoint) == [0]
    with staging.rows((2 * SMALLEST,)):
        pass
    assert regions(endpoint) == [3]


def test_a_transfer_that_fails_gives_its_region_up(endpoint: Endpoint) -> None:
    staging = Staging(endpoint)
    with pytest.raises(KeyError), staging.rows((4,)):
        raise KeyError
    assert regions(endpoint) == []
    with staging.rows((4,)):
        assert regions(endpoint) == [1]
