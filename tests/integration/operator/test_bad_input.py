"""What cannot run says why, costs nothing while it waits, and goes ahead as soon as it can."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from operator_site import MODEL, Site

from xdeepserve_demo.assets import asset, models
from xdeepserve_demo.observe import condition
from xdeepserve_operator.api.names import RESOURCE_DIE
from xdeepserve_operator.runtime.resources import DPGROUPS, MODELDEPLOYMENTS, PODS, TASKEXECUTORS

QUIET_SECONDS = 3.0
GOOD = models() / MODEL


async def test_what_does_not_fit_holds_nothing_and_goes_ahead_once_it_is_smaller(here: Site) -> None:
    await here.kubectl("apply", "--filename", str(asset("examples") / "too-big.yaml"))
    message = await here.refused("too-big", "InsufficientDies")
    assert re.search(r"needs 128 x 1 dies of 910C in SuperPod pod-a, \d+ free, largest block 16", message)
    executor = await here.api.get(TASKEXECUTORS, "too-big-decode", here.namespace)
    assert condition(executor, "Placed")["reason"] == "InsufficientDies"
    assert await here.names(DPGROUPS) == []
    assert await here.engines() == []

    size = {"op": "replace", "path": "/spec/roles/1/parallelism", "value": {"dp": 2, "tp": 1, "ep": 2}}
    model = {"op": "replace", "path": "/spec/model/uri", "value": f"file://{GOOD}"}  # these servers have no model store
    await here.api.patch(MODELDEPLOYMENTS, "too-big", [size, model], here.namespace)
    await here.ready("too-big")


async def test_what_waits_goes_ahead_when_room_appears(here: Site) -> None:
    await here.until_all_dies_are_free()
    for number in range(4):  # all 910C servers
        await here.create(PODS, f"tenant-{number}", spec=tenant(16))
        await here.until(PODS, f"tenant-{number}", lambda pod: bool(pod["spec"].get("nodeName")), "bound")
    await here.deploy()
    assert "needs 2 x 1 dies of 910C in SuperPod pod-a, 0 free" in await here.refused("chat", "InsufficientDies")
    assert await here.engines() == []

    await here.api.delete(PODS, "tenant-0", here.namespace)
    await here.ready()


def tenant(dies: int) -> dict:
    """Somebody else's pod."""
    resources = {"requests": {RESOURCE_DIE: str(dies)}, "limits": {RESOURCE_DIE: str(dies)}}
    container = {"name": "c", "image": "none", "command": ["sleep", "600"], "resources": resources}
    return {"terminationGracePeriodSeconds": 1, "containers": [container]}


def truncate(checkpoint: Path) -> None:
    weights = checkpoint / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100_000])


def change(checkpoint: Path, **fields: object) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(config | fields))


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "truncated": (truncate, r"CheckpointDamaged: .*model\.safetensors: .* truncated"),
    "reshaped": (
        lambda path: change(path, kv_lora_rank=32),
        r"CheckpointDamaged: .*kv_a_proj_with_mqa\.weight has shape \[24, 64\], but config\.json makes it \[40, 64\]",
    ),
    "foreign": (
        lambda path: change(path, architectures=["LlamaForCausalLM"], model_type="llama"),
        r"UnsupportedModel: .*LlamaForCausalLM",
    ),
}


@pytest.fixture
def checkpoints(tmp_path: Path) -> dict[str, Path]:
    for name, (damage, _) in DAMAGES.items():
        shutil.copytree(GOOD, tmp_path / name)
        damage(tmp_path / name)
    return {name: tmp_path / name for name in DAMAGES}


async def test_a_checkpoint_that_cannot_be_used_is_told_in_the_engines_words_and_healed(
    here: Site, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    await here.deploy("missing", uri=f"file://{tmp_path}/nowhere")
    for name, path in checkpoints.items():
        await here.execute(name, f"file://{path}")
    assert re.search(r"CheckpointMissing: .*is not a directory", await here.refused("missing", "ModelLoadFailed"))
    for name, (_, told) in DAMAGES.items():
        assert re.search(told, await here.refused(name, "ModelLoadFailed", TASKEXECUTORS))

    before = await here.operator_writes()
    await asyncio.sleep(QUIET_SECONDS)
    assert await here.operator_writes() - before <= 2 * len(await here.engines()), "it goes round in circles"
    restarts = [pod["status"]["containerStatuses"][0]["restartCount"] for pod in await here.engines()]
    assert max(restarts) <= 3, "a storm"

    shutil.copy(GOOD / "model.safetensors", checkpoints["truncated"])
    await here.api.patch(
        MODELDEPLOYMENTS, "missing", {"spec": {"model": {"uri": f"file://{GOOD}", "name": MODEL}}}, here.namespace
    )
    await here.ready("missing")
    await here.ready("truncated", TASKEXECUTORS)
