"""Weights from rank to rank: all tensors of an expert arrive, and those that cannot arrive are said to be missing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from flowserve.engine.expert_fetch import Source, packed_bytes, publish, unpacked
from flowserve.model.experts import Expert
from flowserve.model.int8 import PanelInt8, int8_linear
from flowserve.model.linear import Linear
from xccl import BadSegment, Endpoint, Layout, Peer, PeerLost, Timeout

LAYOUT = Layout(max_peers=2, max_tokens=8, hidden=48, top_k=2)
RNG = np.random.default_rng(3)


def plain() -> Expert:
    return Expert(*(Linear(RNG.standard_normal(shape, np.float32)) for shape in ((72, 48), (48, 36))))


def quantised(kind: type[PanelInt8] | None = None) -> Expert:
    make = kind or int8_linear
    return Expert(
        *(
            make(RNG.integers(-127, 128, shape, np.int8), RNG.random(shape[0], np.float32))
            for shape in ((72, 48), (48, 36))
        )
    )


def panels() -> Expert:
    return quantised(PanelInt8)


@pytest.fixture
def ends(tmp_path: Path) -> list[Endpoint]:
    return [Endpoint.create(tmp_path, name, LAYOUT) for name in ("here", "there")]


@pytest.mark.parametrize("make", [plain, quantised, panels])
async def test_an_expert_computes_the_same_where_it_arrives(make: type[Expert], ends: list[Endpoint]) -> None:
    here, there = ends
    experts = [make() for _ in range(3)]
    source = Source(here, Peer(1, "there", there.uri), "experts-1-7", [packed_bytes(each) for each in experts], 5.0)
    fetching = asyncio.create_task(source.fetch([2, 0]))
    await asyncio.sleep(0)
    await publish(there, "experts-1-7", experts)
    last, first = [await unpacked(packed, like=experts[1]) for packed in await fetching]
    there.close()
    x = RNG.standard_normal((4, 48), np.float32)
    for sent, arrived in ((experts[2], last), (experts[0], first)):
        assert (sent.gate_up(x) == arrived.gate_up(x)).all()
        assert (sent.down(x[:, :36].copy()) == arrived.down(x[:, :36].copy())).all()
    here.close()


async def test_a_peer_that_dies_is_late_or_keeps_another_form_is_told_apart(ends: list[Endpoint]) -> None:
    here, there = ends
    peer, expert = Peer(1, "there", there.uri), plain()
    with pytest.raises(Timeout):
        await Source(here, peer, "experts-1-1", [packed_bytes(expert)], 0.01).fetch([0])
    await publish(there, "experts-1-1", [expert])
    with pytest.raises(BadSegment):
        await Source(here, peer, "experts-1-1", [packed_bytes(expert) + (1 << 16)], 1.0).fetch([0])
    there.close()
    with pytest.raises(PeerLost):
        await Source(here, peer, "experts-1-1", [packed_bytes(expert)], 1.0).fetch([0])
    here.close()
