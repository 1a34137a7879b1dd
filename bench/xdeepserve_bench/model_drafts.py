"""The demo's model through real engines, with and without MTP drafts: what one user at a time gets.

For each number of drafts there is what the quickstart has, a prefill engine and two decode engines with the experts
spread over both; only their orchestrator and client is this process. Rounds go around the numbers, and the best counts.
"""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flowserve.text import ChatTemplate, Tokenizer
from flowserve.wire import Limits
from xdeepserve_bench.engines.fleet import Fleet, fleet
from xdeepserve_bench.engines.instance import Instance

QUESTIONS = (
    "Who is Mr. Darcy?",
    "Tell me about the letter.",
    "Continue: She walked into the garden, and",
    "Continue: The next morning",
)
RANKS, TOKENS = 2, 96
PATIENCE = 120.0  # seconds
LIMITS = Limits(max_context_tokens=2048, max_batch=8, max_ranks=RANKS)
DRAFTED, ACCEPTED = "vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"


@dataclass(frozen=True)
class Speed:
    """Of one number of drafts."""

    tokens_per_second: float
    accepted: float  # share of the drafts


def measure(checkpoint: Path, drafts: Sequence[int], rounds: int) -> dict[int, Speed]:
    """The speed with each number of drafts. Raises NotServing."""
    with tempfile.TemporaryDirectory(prefix="xdeepserve-bench-") as directory:
        return asyncio.run(_measured(Path(directory), checkpoint, drafts, rounds))


async def _measured(directory: Path, checkpoint: Path, drafts: Sequence[int], rounds: int) -> dict[int, Speed]:
    tokenizer, template = Tokenizer(checkpoint), ChatTemplate.load(checkpoint)
    prompts = [tuple(tokenizer.encode(template.render([("user", question)]))) for question in QUESTIONS]
    async with fleet(directory, checkpoint, LIMITS, patience=PATIENCE) as processes:
        pairs: dict[int, tuple[Instance, Instance]] = {}
        for number in drafts:
            limits = LIMITS.model_copy(update={"speculative_tokens": number})
            pairs[number] = (
                await processes.instance(f"p{number}", "Prefill", 1, limits),
                await processes.instance(f"d{number}", "Decode", RANKS, limits),
            )
        seconds = dict.fromkeys(drafts, float("inf"))
        for _ in range(rounds):
            for number, pair in pairs.items():
                seconds[number] = min(seconds[number], await _seconds(processes, *pair, prompts))
        made = (TOKENS - 1) * len(prompts)
        return {
            number: Speed(made / seconds[number], await _accepted(processes, decode))
            for number, (_, decode) in pairs.items()
        }


async def _seconds(processes: Fleet, prefill: Instance, decode: Instance, prompts: list[tuple[int, ...]]) -> float:
    """From first to last token of the answers, one after the other."""
    total = 0.0
    for prompt in prompts:
        request = await processes.prefill(prefill, prompt, TOKENS, ignore_eos=True)
        stream = await processes.stream(decode.engines[0].config, request)
        total += stream.times[-1] - stream.times[0]
    return total


async def _accepted(processes: Fleet, decode: Instance) -> float:
    found = await processes.figures(decode.engines[0])
    return found[ACCEPTED] / max(found[DRAFTED], 1.0)
