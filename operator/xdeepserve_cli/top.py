"""``xdeepserve top``: what every engine does now, read from the engines themselves.

Two samples of each engine's figures give tokens a second. Engines are asked directly at their pods' addresses with the
deployment's control token: run it where pods can be reached (on the local cluster, or in a pod), as someone who may
read that Secret. An engine that does not answer is listed all the same.
"""

import asyncio
import time
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import aiohttp
import typer
from prometheus_client.parser import text_string_to_metric_families

from xdeepserve_cli.access import Context, Kubeconfig, Namespace, connected, perform
from xdeepserve_cli.output import Format, Output, print_document, print_table
from xdeepserve_cli.place import CliError, Place
from xdeepserve_operator.api import names
from xdeepserve_operator.controllers.objects import label
from xdeepserve_operator.planner.pods import PodView, view_pod
from xdeepserve_operator.resources.children import control_secret_name
from xdeepserve_operator.runtime import resources
from xdeepserve_operator.runtime.engines import EngineClient
from xdeepserve_operator.runtime.kube import NotFound, Object

RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
KV_USAGE, EPOCH, TOKENS = "vllm:kv_cache_usage_perc", "xdeepserve:epoch", "vllm:iteration_tokens_total_sum"
AT_ONCE = 64
COLUMNS = ("ENGINE", "NODE", "EPOCH", "RUNNING", "WAITING", "KV", "TOKENS/S")


@dataclass(frozen=True)
class Row:
    """One engine; figures are None when it did not answer. Tokens are those of prompts and answers."""

    engine: str
    node: str
    epoch: int | None = None
    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    tokens_per_second: float | None = None

    def cells(self) -> tuple[str, ...]:
        """Texts in the order of ``COLUMNS``."""
        if self.epoch is None:
            return (self.engine, self.node, "no answer", "-", "-", "-", "-")
        figures = (str(self.epoch), str(self.running), str(self.waiting))
        return (self.engine, self.node, *figures, f"{self.kv_usage or 0:.0%}", f"{self.tokens_per_second or 0:.1f}")


def top(
    name: Annotated[str | None, typer.Argument(help="A ModelDeployment or TaskExecutor; all when not given.")] = None,
    namespace: Namespace = None,
    interval: Annotated[float, typer.Option(min=0.1, max=60, help="Seconds between the two samples.")] = 1.0,
    output: Output = Format.TEXT,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show every engine's requests, KV use and tokens a second."""

    async def read() -> list[Row]:
        async with connected(kubeconfig, context, namespace) as place:
            return await _sample(place, name, interval)

    rows = perform(read)
    if output is Format.TEXT:
        print_table(COLUMNS, [row.cells() for row in rows])
    else:
        print_document([asdict(row) for row in rows], output)


def figures(text: str | None) -> dict[str, float] | None:
    """The samples of an engine's metrics by name; None when there is no answer."""
    if text is None:
        return None
    return {sample.name: sample.value for family in text_string_to_metric_families(text) for sample in family.samples}


def row(pod: PodView, before: Mapping[str, float] | None, after: Mapping[str, float] | None, seconds: float) -> Row:
    """One engine's row. A counter that went back is a new life: its rate is not known yet, so 0."""
    if after is None:
        return Row(pod.name, pod.node)
    told = after.get(TOKENS, 0.0)
    computed = told - (before or {}).get(TOKENS, told)
    return Row(
        pod.name,
        pod.node,
        epoch=int(after.get(EPOCH, 0)),
        running=int(after.get(RUNNING, 0)),
        waiting=int(after.get(WAITING, 0)),
        kv_usage=after.get(KV_USAGE, 0.0),
        tokens_per_second=max(0.0, computed) / seconds,
    )


async def _sample(place: Place, name: str | None, interval: float) -> list[Row]:
    engines = await _engines(place, name)
    async with aiohttp.ClientSession() as session:
        client, started = EngineClient(session), time.monotonic()
        before = await _ask(client, engines)
        await asyncio.sleep(interval)
        seconds, after = time.monotonic() - started, await _ask(client, engines)
    return [row(pod, first, second, seconds) for (pod, _), first, second in zip(engines, before, after, strict=True)]


async def _engines(place: Place, name: str | None) -> list[tuple[PodView, str]]:
    """The engines that are meant, each with its control token; ``CliError`` when there is none."""
    engines: list[tuple[PodView, str]] = []
    executors = await place.list(resources.TASKEXECUTORS)
    meant = [one for one in executors if name in (None, one["metadata"]["name"], label(one, names.LABEL_DEPLOYMENT))]
    if name is not None and not meant:
        raise await place.none_such(name, resources.MODELDEPLOYMENTS, resources.TASKEXECUTORS)
    for executor in meant:
        child = executor["metadata"]["name"]
        labels = f"{names.LABEL_EXECUTOR}={child},{names.LABEL_COMPONENT}={names.COMPONENT_ENGINE}"
        pods = [view_pod(pod) for pod in await place.list(resources.PODS, labels=labels)]
        token = await _token(place, executor) if pods else ""
        engines += [(pod, token) for pod in sorted(pods, key=lambda pod: (pod.replica, len(pod.group), pod.group))]
    if not engines:
        whose = "" if name is None else f" of {name!r}"
        raise CliError(f"there is no engine{whose} in namespace {place.namespace} yet; 'xdeepserve status' says why")
    return engines


async def _token(place: Place, executor: Object) -> str:
    reference = executor["spec"].get("controlTokenSecretRef") or {}
    secret = reference.get("name") or control_secret_name(executor["metadata"]["name"])
    try:
        found = await place.api.get(resources.SECRETS, secret, place.namespace)
    except NotFound as error:
        raise CliError(
            f"Secret {secret!r} with the engines' control token is not there; does the operator run?"
        ) from error
    return b64decode((found.get("data") or {}).get("token", "")).decode()


async def _ask(client: EngineClient, engines: Sequence[tuple[PodView, str]]) -> list[dict[str, float] | None]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(pod: PodView, token: str) -> dict[str, float] | None:
        async with gate:
            return figures(await client.engine_metrics(pod.ip, token)) if pod.alive and pod.ip else None

    return list(await asyncio.gather(*(one(pod, token) for pod, token in engines)))
