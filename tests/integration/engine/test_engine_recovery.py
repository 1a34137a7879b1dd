"""What happens when a process dies, and what its survivors keep."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_fleet import LIMITS, MODEL, start
from engine_reference import Reference

from flowserve.wire import DispatchReply, EngineConfig, EngineStatus, GenerateRequest, ShellStatus
from xdeepserve_bench.engines.fleet import Fleet
from xdeepserve_bench.engines.instance import Instance
from xdeepserve_bench.engines.programs import Refusal, until

PROMPT = tuple(range(3, 19))
TOKENS = 300


class Stream:
    """A stream that somebody reads in the background."""

    def __init__(self, fleet: Fleet, where: DispatchReply, request: GenerateRequest) -> None:
        self.rank = where.rank
        self.tokens: list[int] = []
        self.error: str | None = None
        self.progress = asyncio.Event()
        self.done = asyncio.create_task(self._read(fleet, where, request))

    async def _read(self, fleet: Fleet, where: DispatchReply, request: GenerateRequest) -> None:
        async for event in fleet.generate(where, request):
            self.tokens += event.tokens
            self.error = event.error
            self.progress.set()

    async def moved(self) -> None:
        """Waits for the next token."""
        self.progress.clear()
        await asyncio.wait_for(self.progress.wait(), 10)


async def has_state(instance: Instance, rank: int, state: str) -> EngineStatus:
    async def there() -> EngineStatus | None:
        status = await instance.engine_status(rank)
        return status if status.state == state else None

    return await until(there, f"rank {rank} of {instance.name} is {state}")


def at(instance: Instance, rank: int) -> DispatchReply:
    """A rank of our choice: what the TE-shell picks depends on how soon it hears of the ones before."""
    return DispatchReply(host=instance.engines[rank].config.host, api_port=8000, rank=rank, incarnation="x")


@pytest.mark.parametrize("apart", [False, True], ids=["one host", "a host each"])
async def test_a_killed_rank_costs_its_own_streams_and_no_token_of_the_others(fleet: Fleet, apart: bool) -> None:
    p = await fleet.instance("p", "Prefill", 1, apart=apart)
    d = await fleet.instance("d", "Decode", 2, apart=apart)
    requests = [await fleet.prefill(p, PROMPT, TOKENS, ignore_eos=True) for _ in range(4)]
    streams = [Stream(fleet, at(d, number % 2), request) for number, request in enumerate(requests)]
    for stream in streams:
        await stream.moved()

    await d.engines[1].kill()

    broken = await has_state(d, 0, "Broken")
    assert "rank 1" in broken.error
    assert broken.running == 2
    held = [len(stream.tokens) for stream in streams if stream.rank == 0]
    late = await fleet.prefill(p, PROMPT, TOKENS, ignore_eos=True)
    waiting = Stream(fleet, at(d, 0), late)

    await d.launch(1)
    await d.form()

    expected = Reference().answer(PROMPT, TOKENS)
    for stream in streams:
        await stream.done
        if stream.rank == 0:
            assert (stream.error, stream.tokens) == (None, expected)
        else:
            assert stream.error == "the engine has ended"
            assert stream.tokens == expected[: len(stream.tokens)]
    await waiting.done
    assert waiting.tokens == expected
    assert all(count < TOKENS for count in held)


async def test_an_instance_shrinks_without_losing_what_its_survivors_hold(fleet: Fleet) -> None:
    p, d = await fleet.instance("p", "Prefill", 1), await fleet.instance("d", "Decode", 2)
    streams = [Stream(fleet, at(d, rank), await fleet.prefill(p, PROMPT, TOKENS, ignore_eos=True)) for rank in (0, 1)]
    for stream in streams:
        await stream.moved()

    await d.engines.pop(0).kill()
    await d.form()  # what was rank 1 is rank 0 now, and holds all experts

    survivor = next(stream for stream in streams if stream.rank == 1)
    await survivor.done
    assert survivor.tokens == Reference().answer(PROMPT, TOKENS)
    await asyncio.gather(*(stream.done for stream in streams))


async def test_a_rank_that_hangs_is_lost_to_the_others_and_may_come_back(fleet: Fleet) -> None:
    limits = LIMITS.model_copy(update={"collective_timeout_seconds": 1.5})
    p = await fleet.instance("p", "Prefill", 1)
    d = await fleet.instance("d", "Decode", 2, limits)
    streams = [Stream(fleet, at(d, rank), await fleet.prefill(p, PROMPT, TOKENS, ignore_eos=True)) for rank in (0, 1)]
    for stream in streams:
        await stream.moved()

    d.engines[1].process.send_signal(signal.SIGSTOP)
    broken = await has_state(d, 0, "Broken")
    assert "did not take part in time" in broken.error
    d.engines[1].process.send_signal(signal.SIGCONT)
    await has_state(d, 1, "Broken")  # the others have left
    await d.form()

    expected = Reference().answer(PROMPT, TOKENS)
    for stream in streams:
        await stream.done
        assert (stream.error, stream.tokens) == (None, expected)


async def test_a_ticket_of_a_restarted_prefill_engine_fails_alone(fleet: Fleet) -> None:
    p, d = await fleet.instance("p", "Prefill", 1), await fleet.instance("d", "Decode", 1)
    other = Stream(fleet, await d.dispatch(), await fleet.prefill(p, PROMPT, TOKENS, ignore_eos=True))
    stale = await fleet.prefill(p, PROMPT, 8)
    await other.moved()

    await p.engines[0].kill()
    with pytest.raises(Refusal) as refused:
        await fleet.answer(await d.dispatch(), stale)
    assert (refused.value.status, refused.value.body["retryable"]) == (503, True)
    await p.launch(0)
    await p.form()

    # The same address answers again, but as another engine, which never gave this ticket.
    assert stale.ticket is not None
    moved = stale.ticket.model_copy(update={"host": p.engines[0].config.host})
    with pytest.raises(Refusal, match="ticket"):
        await fleet.answer(await d.dispatch(), stale.model_copy(update={"ticket": moved}))
    fresh = await fleet.prefill(p, PROMPT, 8, ignore_eos=True)
    expected = Reference().answer(PROMPT, TOKENS)
    assert await fleet.answer(await d.dispatch(), fresh) == expected[:8]
    await other.done
    assert other.tokens == expected


async def test_prefill_over_two_ranks_keeps_step(fleet: Fleet) -> None:
    p, d = await fleet.instance("p", "Prefill", 2), await fleet.instance("d", "Decode", 1)
    prompts = [tuple(3 + (i * k) % 300 for i in range(40 * k)) for k in range(1, 5)]

    async def stream(prompt: tuple[int, ...]) -> list[int]:
        return await fleet.answer(await d.dispatch(), await fleet.prefill(p, prompt, 8, ignore_eos=True))

    answers = await asyncio.gather(*map(stream, prompts))

    reference = Reference()
    assert answers == [reference.answer(prompt, 8) for prompt in prompts]
    assert (await p.engine_status(0)).iterations == (await p.engine_status(1)).iterations


def only_child(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def runs(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_an_output_process_ends_with_its_engine(fleet: Fleet) -> None:
    d = await fleet.instance("d", "Decode", 1)
    output = only_child(d.engines[0].process.pid)

    await d.engines[0].kill()

    async def gone() -> bool | None:
        return None if runs(output) else True

    await until(gone, "the output process has ended")
    await d.launch(0)
    await d.form()


async def test_an_engine_ends_with_its_output_process_as_a_crash(fleet: Fleet) -> None:
    d = await fleet.instance("d", "Decode", 1)
    engine = d.engines[0].process
    os.kill(only_child(engine.pid), signal.SIGKILL)
    assert await asyncio.wait_for(engine.wait(), 10) == 1


def remove_weights(model: Path) -> None:
    (model / "model.safetensors").unlink()


def truncate_weights(model: Path) -> None:
    with (model / "model.safetensors").open("r+b") as file:
        file.truncate(100_000)


def change_architecture(model: Path) -> None:
    config = model / "config.json"
    config.write_text(config.read_text().replace("DeepseekV3ForCausalLM", "LlamaForCausalLM"))


def change_shape(model: Path) -> None:
    config = model / "config.json"
    config.write_text(re.sub(r'"moe_intermediate_size": \d+', '"moe_intermediate_size": 24', config.read_text()))


def remove_directory(model: Path) -> None:
    shutil.rmtree(model)


def remove_tokenizer(model: Path) -> None:
    (model / "tokenizer.json").unlink()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (remove_directory, "CheckpointMissing"),
        (remove_weights, "CheckpointMissing"),
        (remove_tokenizer, "CheckpointMissing"),
        (truncate_weights, "CheckpointDamaged"),
        (change_shape, "CheckpointDamaged"),
        (change_architecture, "UnsupportedModel"),
    ],
)
async def test_a_checkpoint_that_can_never_work_is_told_apart_from_a_crash(
    tmp_path: Path, damage: Callable[[Path], None], reason: str
) -> None:
    shutil.copytree(MODEL, tmp_path / "models/broken")
    damage(tmp_path / "models/broken")
    config = EngineConfig(
        name="e",
        instance="i",
        role="Decode",
        dp_rank=0,
        model_name="broken",
        model_uri="file:///models/broken",
        limits=LIMITS,
        api_port=0,
        control_port=0,
        doorbell_port=0,
    )
    program = await start("flowserve.engine", config, tmp_path, XDEEPSERVE_MODELS_DIR=str(tmp_path / "models"))
    assert await asyncio.wait_for(program.process.wait(), 20) == 78
    assert program.log.read_text().splitlines()[-1].startswith(f"xdeepserve: {reason}: ")


async def test_a_silent_rank_is_reported_and_gets_no_requests(fleet: Fleet) -> None:
    d = await fleet.instance("d", "Decode", 1)
    d.engines[0].process.send_signal(signal.SIGSTOP)  # it hangs, its connections stay

    async def silent() -> ShellStatus | None:
        status = await d.status()
        return status if status and not status.ready and status.ranks[0].silent_seconds > 0.6 else None

    await until(silent, "the shell notices the silence")
    with pytest.raises(Refusal, match="503"):
        await d.dispatch()
    d.engines[0].process.send_signal(signal.SIGCONT)

    async def ready() -> bool | None:
        status = await d.status()
        return True if status and status.ready else None

    await until(ready, "the rank is heard again")
    assert (await d.dispatch()).rank == 0
