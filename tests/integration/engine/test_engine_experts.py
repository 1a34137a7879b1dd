"""Experts move between real engines while they serve: the tokens stay exact, over shared memory and over TCP."""

from __future__ import annotations

import asyncio

import pytest

from flowserve.wire_experts import ExpertHistory, ExpertOrder, ExpertTable, ExpertWatch, LayerSlots
from xdeepserve_bench.engines.fleet import Fleet
from xdeepserve_bench.engines.instance import Instance
from xdeepserve_bench.engines.programs import Refusal, until

Golden = list[tuple[tuple[int, ...], list[int]]]
SWAPPED = ((8, 1, 2, 3, 4, 5, 6, 7, 9), (0, 9, 10, 11, 12, 13, 14, 15, 1))  # 0 and 8 change places, 1 and 9 twice


async def order(fleet: Fleet, d: Instance, version: int, slots: tuple[tuple[int, ...], ...]) -> None:
    layers = tuple(LayerSlots(layer=layer, slots=slots) for layer in (1, 2, 3))
    body = ExpertOrder(instance=d.name, epoch=d.epoch, version=version, layers=layers)
    await fleet.call(d.shell, "PUT", "/v1/experts/placement", body)


async def in_force(d: Instance, version: int) -> None:
    async def there() -> bool | None:
        status = await d.status()
        ranks = [rank.status.experts.version for rank in status.ranks if rank.status] if status else []
        return True if set(ranks) == {version} else None

    await until(there, f"version {version} is in force on all ranks")


@pytest.mark.parametrize("apart", [False, True], ids=["one host", "a host each"])
async def test_experts_move_while_streams_go_on(fleet: Fleet, golden: Golden, apart: bool) -> None:
    p = await fleet.instance("p", "Prefill", 1, apart=apart)
    d = await fleet.instance("d", "Decode", 2, apart=apart)
    watch = ExpertWatch(instance="d", interval_seconds=0.2)
    await fleet.call(d.shell, "PUT", "/v1/experts/watch", watch)

    async def stream(number: int) -> list[int]:
        prompt, expected = golden[number % 2]
        request = await fleet.prefill(p, prompt, len(expected), ignore_eos=True)
        return await fleet.answer(await d.dispatch(), request)

    async def streams() -> None:
        answers = await asyncio.gather(*(stream(number) for number in range(4)))
        assert answers == [golden[number % 2][1] for number in range(4)]

    serving = asyncio.create_task(streams())
    await order(fleet, d, 1, SWAPPED)
    await in_force(d, 1)
    await order(fleet, d, 2, tuple(reversed(SWAPPED)))
    await serving
    await in_force(d, 2)
    await streams()

    table = await fleet.ask(d.shell, "GET", "/v1/experts/placement", None, ExpertTable)
    assert table is not None
    assert {layer.slots for layer in table.layers} == {tuple(reversed(SWAPPED))}
    history = await fleet.ask(d.shell, "GET", "/v1/experts/load?after=0", None, ExpertHistory)
    assert history is not None
    assert sum(sum(map(sum, one.chosen)) for one in history.slices) > 0
    with pytest.raises(Refusal, match="older than version 2"):
        await order(fleet, d, 1, SWAPPED)


async def test_a_rank_that_is_replaced_takes_the_placement_back_to_the_plain_one(fleet: Fleet, golden: Golden) -> None:
    p = await fleet.instance("p", "Prefill", 1)
    d = await fleet.instance("d", "Decode", 2)
    await order(fleet, d, 1, SWAPPED)
    await in_force(d, 1)
    await d.engines[1].kill()
    await d.launch(1)
    await d.form()
    await in_force(d, 0)
    prompt, expected = golden[0]
    request = await fleet.prefill(p, prompt, len(expected), ignore_eos=True)
    assert await fleet.answer(await d.dispatch(), request) == expected
    await order(fleet, d, 2, SWAPPED)
    await in_force(d, 2)
