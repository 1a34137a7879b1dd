"""The demo's story: a cluster, the operator, a model, a chat, a dead die, a healed deployment, nothing left behind."""

import asyncio

from xdeepserve_cluster.controlplane import ClusterSpec
from xdeepserve_cluster.progress import Progress
from xdeepserve_demo.assets import models
from xdeepserve_demo.client import stream_chat, verify
from xdeepserve_demo.errors import PromiseBroken
from xdeepserve_demo.fault import break_die
from xdeepserve_demo.load import Load
from xdeepserve_demo.reference import Reference
from xdeepserve_demo.session import DEPLOYMENT, MODEL, Session, session
from xdeepserve_demo.summary import placement_table, show, times_table
from xdeepserve_demo.timeline import Timeline

PROMPTS = [
    "Who is Mr. Darcy?",
    "Tell me about the letter.",
    "Continue: She walked into the garden, and",
    "Hello!",
    *(f"Tell me about Mr. Bennet's daughter number {number}." for number in range(1, 5)),
]
STREAM_TOKENS = 200
STREAMS = 6


async def demo(name: str, *, keep: bool) -> None:
    """Tells the story and checks it; raises ``PromiseBroken`` or what went wrong, after taking everything down."""
    timeline = Timeline(Progress())
    spec = ClusterSpec(name=name, models=models())
    async with session(spec, timeline.progress, keep=keep) as current:
        await _serve(current, timeline)
        await _break_and_heal(current, timeline)
        show(times_table(timeline.steps), placement_table(await current.pods()))
        if keep:
            _tell_how_to_go_on(current)


async def _serve(current: Session, timeline: Timeline) -> None:
    with timeline.step("operator installed with Helm"):
        await current.install()
    with timeline.step("kubectl apply -f examples/quickstart.yaml"):
        await current.apply()
    with timeline.step(f"kubectl wait --for=condition=Ready modeldeployment/{DEPLOYMENT}"):
        await current.wait_ready()
    endpoint = await current.endpoint()
    with timeline.step("first chat completion streamed"):
        answer = await stream_chat(endpoint, MODEL, PROMPTS[0], 32)
    if answer.error is not None:
        raise PromiseBroken(f"the first completion failed: {answer.error}")
    timeline.say(f"POST {endpoint}/v1/chat/completions: {PROMPTS[0]}")
    timeline.say(f"-> {len(answer.token_ids)} tokens: {' '.join(answer.text.split())[:60]} …")
    timeline.record("time to first token", answer.ttft_s)


async def _break_and_heal(current: Session, timeline: Timeline) -> None:
    load = Load(await current.endpoint(), MODEL, PROMPTS, STREAM_TOKENS, STREAMS)
    streaming = asyncio.create_task(load.run())
    try:
        with timeline.step(f"a die dies under {STREAMS} streams, and the deployment heals"):
            outcome = await break_die(current, load)
    finally:
        load.stop()
        await streaming
    timeline.say(f"die {outcome.die} of {outcome.server} died under {', '.join(outcome.pods)}")
    timeline.record("from the die's death to Ready=False", outcome.detected)
    timeline.record("from the die's death to Ready=True", outcome.ready_again)
    timeline.record("from the die's death to the next completion", outcome.next_completion)
    with timeline.step("every stream compared with a single process"):
        reference = await asyncio.to_thread(Reference, current.checkpoint)
        results = [attempt.result for attempt in load.attempts]
        expected = [reference.greedy(result.prompt_token_ids, STREAM_TOKENS) for result in results]
        verdict = verify(results, expected)
    timeline.say(
        f"{len(results)} streams: {verdict.ok} right, {verdict.retryable} told to try again, "
        f"{len(verdict.violations)} lost, repeated or reordered a token"
    )
    if verdict.violations:
        raise PromiseBroken("; ".join(verdict.violations[:5]))


def _tell_how_to_go_on(current: Session) -> None:
    print(
        f"\nThe cluster stays up. To use it:\n"
        f"  export KUBECONFIG={current.cluster.kubeconfig} PATH={current.cluster.tools}:$PATH\n"
        f"  kubectl get superpods,modeldeployments,taskexecutors,dpgroups -o wide\n"
        f"To take it down:\n  make down"
    )
