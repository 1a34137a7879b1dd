"""The engine's decode loop with and without MTP drafts, as a worker of ``bench model``.

One sequence at a time, through everything that an engine does in an iteration: vote, scheduler, forward pass with
dispatch and combine over XCCL (a group of one rank), choice, drafts, commit. Only the ports are left out.
"""

import argparse
import asyncio
import sys
import tempfile
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from flowserve.cache import SequenceKV
from flowserve.engine.decoding import Decoding
from flowserve.engine.drafting import MtpDrafter
from flowserve.engine.expert_load import ExpertCounts
from flowserve.engine.expert_map import ExpertMap
from flowserve.engine.experts import DistributedExperts
from flowserve.engine.iteration import Iterations, Tally
from flowserve.engine.loading import Runtime
from flowserve.engine.role import Advance
from flowserve.engine.scheduler import Scheduler
from flowserve.engine.sequence import Sequence, Stage
from flowserve.model import Experts
from flowserve.text import ChatTemplate, Tokenizer
from flowserve.wire import GenerateRequest, Limits, Sampling
from xccl import Endpoint, Group, Peer, Steps, arun, run
from xdeepserve_bench.model_rank import Still
from xdeepserve_bench.model_worker import serve

QUESTIONS = (
    "Who is Mr. Darcy?",
    "Tell me about the letter.",
    "Continue: She walked into the garden, and",
    "Continue: The next morning",
)
LIMIT_SECONDS = 60.0


class Answers:
    """The role of an engine that reads its prompts itself; see ``flowserve.engine.role.Role``."""

    most = 1

    def __init__(self, runtime: Runtime, scheduler: Scheduler, experts: Experts) -> None:
        drafter = MtpDrafter(runtime.model, runtime.mtp, runtime.drafts) if runtime.mtp else None
        self._decoding = Decoding(runtime.model, frozenset(), drafter)
        self._runtime = runtime
        self._scheduler = scheduler
        self._experts = experts

    def room(self, request: GenerateRequest) -> int:
        return len(request.prompt) + request.max_tokens

    def enter(self, sequence: Sequence, /) -> Stage:
        """Reads the prompt and chooses the first token."""
        model, mtp, prompt = self._runtime.model, self._runtime.mtp, np.array(sequence.tokens, np.int32)
        hidden = run(model.read(prompt, 0, sequence.kv, self._experts), timeout=LIMIT_SECONDS)
        sequence.add(sequence.choose(model.logits(hidden[-1:])[0]))
        if mtp is not None:
            following = np.array(sequence.tokens[1:], np.int32)
            run(mtp.read(model, hidden, following, 0, sequence.kv, self._experts), timeout=LIMIT_SECONDS)
        sequence.computed = len(prompt)
        return Stage.RUNNING

    def step(self, batch: list[Sequence], experts: Experts) -> Steps[list[Advance]]:
        return self._decoding.step(batch, experts)

    def deliver(self, sequence: Sequence) -> None:
        if sequence.finish_reason(frozenset()):
            self._scheduler.release(sequence)

    async def settle(self) -> NoReturn:
        raise NotImplementedError


class Loop:
    """One engine that drafts ``drafts`` tokens an iteration; its memory lies in ``shared``."""

    def __init__(self, directory: Path, shared: Path, drafts: int) -> None:
        limits = Limits(max_batch=1, kv_blocks=64, max_ranks=1, speculative_tokens=drafts)
        self._runtime = Runtime(directory, limits)
        tokenizer, template = Tokenizer(directory), ChatTemplate.load(directory)
        self._prompts = [tuple(tokenizer.encode(template.render([("user", text)]))) for text in QUESTIONS]
        self._keys = count()
        layers, experts = self._runtime.experts.layers, self._runtime.config.n_routed_experts
        plain = ExpertMap.plain(layers, experts, 1)
        self._runtime.hold(plain.held(0))
        endpoint = Endpoint.create(shared, f"drafts{drafts}", self._runtime.layout)
        peers = [Peer(0, endpoint.incarnation, endpoint.uri)]
        self._group = run(Group.join(endpoint, epoch=1, rank=0, peers=peers), timeout=LIMIT_SECONDS)
        counts = ExpertCounts(tuple(layers), experts)
        spread = DistributedExperts(self._group, self._runtime.experts, Still(plain), counts, LIMIT_SECONDS)
        self._scheduler = Scheduler(self._runtime.pool, 1, len(QUESTIONS))
        self.tally, self._role = Tally(), Answers(self._runtime, self._scheduler, spread)
        self._iterations = Iterations(self._scheduler, self._role, spread, self.tally, lambda: None)

    async def answer(self, tokens: int) -> float:
        """Seconds that the answers to all questions take behind their first tokens."""
        seconds = 0.0
        for prompt in self._prompts:
            request = GenerateRequest(
                request_id="r", prompt=prompt, max_tokens=tokens, sampling=Sampling(temperature=0)
            )
            kv = SequenceKV(self._scheduler.pool)
            self._scheduler.submit(Sequence(next(self._keys), request, kv, self._role.room(request)))
            self._scheduler.admit(self._role.enter)
            begin = asyncio.get_running_loop().time()
            while self._scheduler.has_work:
                await arun(self._group.vote(1), timeout=LIMIT_SECONDS)
                await self._iterations.iterate()
            seconds += asyncio.get_running_loop().time() - begin
        return seconds


class Drafts:
    """Loops with and without drafts, beside each other."""

    def __init__(self, directory: Path, shared: Path) -> None:
        self._directory = directory
        self._shared = shared
        self._loops: dict[int, Loop] = {}

    def answer(self, drafts: int, tokens: int) -> dict[str, Any]:
        """Tokens a second over all questions, and the share of drafts that were accepted."""
        if drafts not in self._loops:
            self._loops[drafts] = Loop(self._directory, self._shared, drafts)
        loop = self._loops[drafts]
        seconds = asyncio.run(loop.answer(tokens))
        made = (tokens - 1) * len(QUESTIONS)
        return {"tokens_per_second": made / seconds, "accepted": loop.tally.accepted / max(loop.tally.drafted, 1)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=Path)
    with tempfile.TemporaryDirectory(prefix="xdeepserve-bench-", dir="/dev/shm") as folder:
        serve(Drafts(parser.parse_args().checkpoint, Path(folder)), sys.stdin, sys.stdout)
