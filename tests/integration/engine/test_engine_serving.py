"""One prefill engine, two decode engines, and their shells serve as one model would."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from engine_fleet import LIMITS
from engine_reference import Reference

from flowserve.wire import DispatchReply, EngineStatus, Membership, Sampling, TransferTicket
from xdeepserve_bench.engines.fleet import Fleet
from xdeepserve_bench.engines.instance import Instance
from xdeepserve_bench.engines.programs import Refusal, until

pytestmark = pytest.mark.asyncio(loop_scope="module")
Golden = list[tuple[tuple[int, ...], list[int]]]
LONG_PROMPT = tuple(3 + (7 * i) % 300 for i in range(3 * LIMITS.prefill_chunk_tokens + 5))


@pytest.fixture
def p(shared: Fleet) -> Instance:
    return shared.instances[0]


@pytest.fixture
def d(shared: Fleet) -> Instance:
    return shared.instances[1]


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference()


async def rank(instance: Instance, number: int) -> DispatchReply:
    """A chosen rank, in place of the one that the shell would pick."""
    config, status = instance.engines[number].config, await instance.engine_status(number)
    return DispatchReply(host=config.host, api_port=8000, rank=number, incarnation=status.incarnation)


async def emptied(instance: Instance) -> list[EngineStatus]:
    """Waits until no rank holds anything."""

    async def empty() -> list[EngineStatus] | None:
        statuses = [await instance.engine_status(number) for number in range(len(instance.engines))]
        idle = all(status.running == status.waiting == 0 and status.kv_usage == 0 for status in statuses)
        return statuses if idle else None

    return await until(empty, f"{instance.name} is empty")


async def test_answers_are_those_of_the_reference_implementation(
    shared: Fleet, p: Instance, d: Instance, golden: Golden
) -> None:
    for prompt, expected in golden:
        request = await shared.prefill(p, prompt, len(expected), ignore_eos=True)
        assert await shared.answer(await d.dispatch(), request) == expected


async def test_sixteen_streams_at_once_over_both_ranks(shared: Fleet, p: Instance, d: Instance, golden: Golden) -> None:
    async def stream(number: int) -> tuple[int, list[int]]:
        request = await shared.prefill(p, golden[number % 2][0], 32, ignore_eos=True)
        where = await d.dispatch()
        return where.rank, await shared.answer(where, request)

    answers = await asyncio.gather(*(stream(number) for number in range(16)))

    assert [tokens for _, tokens in answers] == [golden[number % 2][1] for number in range(16)]
    assert all(sum(where == number for where, _ in answers) >= 6 for number in (0, 1))
    await emptied(p)
    await emptied(d)


async def test_a_rank_without_tokens_takes_part_in_every_iteration(
    shared: Fleet, p: Instance, d: Instance, golden: Golden
) -> None:
    prompt, expected = golden[0]
    before = [status.iterations for status in await emptied(d)]
    for number in (0, 1):
        request = await shared.prefill(p, prompt, len(expected), ignore_eos=True)
        assert await shared.answer(await rank(d, number), request) == expected

    steps = 2 * (len(expected) - 1)  # the first token comes from the prefill
    assert [status.iterations for status in await emptied(d)] == [count + steps for count in before]


async def test_an_idle_instance_runs_no_iteration_and_still_wakes(
    shared: Fleet, p: Instance, d: Instance, golden: Golden
) -> None:
    prompt, expected = golden[1]
    before = [status.iterations for status in await emptied(d)]
    await asyncio.sleep(0.5)
    assert [status.iterations for status in await emptied(d)] == before
    for number in (1, 0, 1):
        request = await shared.prefill(p, prompt, len(expected), ignore_eos=True)
        assert await shared.answer(await rank(d, number), request) == expected


async def test_a_prompt_of_several_chunks(shared: Fleet, p: Instance, d: Instance, reference: Reference) -> None:
    request = await shared.prefill(p, LONG_PROMPT, 40, ignore_eos=True)
    assert await shared.answer(await d.dispatch(), request) == reference.answer(LONG_PROMPT, 40)


async def test_sampling_depends_on_the_seed_alone(
    shared: Fleet, p: Instance, d: Instance, reference: Reference, golden: Golden
) -> None:
    async def stream(seed: int) -> list[int]:
        sampling = Sampling(temperature=1.0, top_p=0.95, top_k=50, seed=seed)
        request = await shared.prefill(p, golden[0][0], 24, ignore_eos=True, sampling=sampling)
        return await shared.answer(await d.dispatch(), request)

    crowd = await asyncio.gather(*(stream(seed) for seed in (1, 2, 1, 2)))

    assert crowd[0] == crowd[2] == reference.answer(golden[0][0], 24, Sampling(top_p=0.95, top_k=50, seed=1))
    assert crowd[0] != crowd[1] == crowd[3]


async def test_a_stop_string_ends_the_stream_and_frees_its_blocks(
    shared: Fleet, p: Instance, d: Instance, golden: Golden
) -> None:
    request = await shared.prefill(p, golden[0][0], 32, ignore_eos=True)
    text = "".join([event.text async for event in shared.generate(await d.dispatch(), request)])
    stop = text[len(text) // 2 :][:3]

    request = await shared.prefill(p, golden[0][0], 300, ignore_eos=True, stop=(stop,))
    events = [event async for event in shared.generate(await d.dispatch(), request)]

    assert "".join(event.text for event in events) == text[: text.index(stop)]
    assert [event.finish_reason for event in events if event.finish_reason] == ["stop"]
    await emptied(d)


async def test_a_client_that_disconnects_frees_its_blocks(
    shared: Fleet, p: Instance, d: Instance, golden: Golden
) -> None:
    await emptied(p)
    request = await shared.prefill(p, golden[0][0], 400, ignore_eos=True)
    where = await d.dispatch()
    async with aclosing(shared.generate(where, request)) as events:
        assert (await anext(events)).tokens
        assert (await d.engine_status(where.rank)).kv_usage > 0

    await emptied(d)
    await emptied(p)


async def test_more_requests_than_places_wait_their_turn(
    shared: Fleet, p: Instance, d: Instance, golden: Golden
) -> None:
    where = await rank(d, 0)
    requests = [await shared.prefill(p, golden[0][0], 32, ignore_eos=True) for _ in range(LIMITS.max_batch + 4)]
    answers = await asyncio.gather(*(shared.answer(where, request) for request in requests))
    assert answers == [golden[0][1]] * len(requests)
    await emptied(d)


async def test_a_ticket_is_good_once(shared: Fleet, p: Instance, d: Instance, golden: Golden) -> None:
    request = await shared.prefill(p, golden[0][0], 8, ignore_eos=True)
    assert await shared.answer(await d.dispatch(), request) == golden[0][1][:8]
    with pytest.raises(Refusal) as refused:
        await shared.answer(await d.dispatch(), request)
    assert (refused.value.status, refused.value.body["retryable"]) == (503, True)


async def test_a_dropped_ticket_frees_its_blocks(shared: Fleet, p: Instance, golden: Golden) -> None:
    request = await shared.prefill(p, golden[0][0], 8)
    assert (await p.engine_status(0)).kv_usage > 0
    assert isinstance(request.ticket, TransferTicket)
    await shared.call(p.engines[0], "DELETE", f"/v1/transfers/{request.ticket.id}")
    await emptied(p)
    with pytest.raises(Refusal, match="404"):
        await shared.call(p.engines[0], "DELETE", f"/v1/transfers/{request.ticket.id}")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"ticket": None}, "needs the ticket"),
        ({"first_token": 5000}, "vocabulary"),
        ({"prompt": (3,) * 17}, "the ticket holds 16"),
        ({"prompt": (3,) * 15 + (9999,)}, "outside"),
        ({"max_tokens": 500}, "the context has 512"),
    ],
)
async def test_a_request_that_can_never_be_served_is_refused_for_good(
    shared: Fleet, p: Instance, d: Instance, golden: Golden, changes: dict[str, object], problem: str
) -> None:
    request = await shared.prefill(p, golden[0][0], 8)
    with pytest.raises(Refusal, match=problem) as refused:
        await shared.answer(await d.dispatch(), request.model_copy(update=changes))
    assert refused.value.status == 400
    assert isinstance(request.ticket, TransferTicket)
    await shared.call(p.engines[0], "DELETE", f"/v1/transfers/{request.ticket.id}")


async def test_without_the_token_only_health_is_told(shared: Fleet, p: Instance, d: Instance) -> None:
    api = f"http://{d.engines[0].config.host}:8000"
    for base in (p.engines[0].control, d.shell.control, api):
        for path, status in (("/health", 200), ("/health/ready", 200), ("/v1/status", 401), ("/metrics", 401)):
            async with shared.session.get(base + path, headers={"Authorization": "Bearer wrong"}) as response:
                assert response.status == status, base + path


async def test_a_repeated_membership_is_harmless_and_another_one_refused(shared: Fleet, d: Instance) -> None:
    before = await d.engine_status(0)
    members = (await d.form()).members  # a new epoch of the same members
    assert (await d.engine_status(0)).incarnation == before.incarnation
    for target in (d.engines[0], d.shell):
        membership = Membership(instance="d", epoch=d.epoch, members=members)
        await shared.call(target, "PUT", "/v1/membership", membership)
        for wrong in (
            membership.model_copy(update={"epoch": d.epoch - 1}),
            membership.model_copy(update={"members": members[:1]}),
            membership.model_copy(update={"epoch": d.epoch + 1, "instance": "another"}),
        ):
            with pytest.raises(Refusal, match="409"):
                await shared.call(target, "PUT", "/v1/membership", wrong)
    assert (await d.engine_status(0)).state == "Serving"


async def test_figures_have_the_names_that_dashboards_know(shared: Fleet, d: Instance) -> None:
    async with shared.session.get(d.engines[0].control + "/metrics") as response:
        text = await response.text()
    assert 'vllm:num_requests_running{model_name="tiny-deepseek-v3"} 0.0\n' in text
    assert 'vllm:kv_cache_usage_perc{model_name="tiny-deepseek-v3"} 0' in text
