"""The operator dies at every one of its writes in turn; the next one completes the work."""

import pytest

from . import manifests
from .driver import World


def picture(world: World) -> dict[str, object]:
    """What should be the same however often the operator died."""
    kinds = ("TaskExecutor", "DPGroup", "Pod", "Deployment", "Service")
    places = {obj["metadata"]["name"]: obj["spec"]["node"] for obj in world.api.list("DPGroup")}
    return {kind: world.names(kind) for kind in kinds} | {
        "places": places,
        "ready": world.ready("ModelDeployment", "chat"),
        "replicas": {one["metadata"]["name"]: one["spec"]["replicas"] for one in world.api.list("TaskExecutor")},
    }


async def dying_anywhere_ends_alike(calm: World) -> None:
    """Lets this world settle, then lets the operator die before each of the writes that this took."""
    before = len(calm.api.writes)
    moments = await calm.settle_remembering()
    writes = calm.api.writes[before:]
    assert len(moments) == len(writes) > 0
    for moment, write in zip(moments, writes, strict=True):
        world = World.after_death(moment)
        await world.settle()
        assert picture(world) == picture(calm), f"died at {write}"


async def start(decode_replicas: int = 1) -> World:
    world = World()
    world.api.add("SuperPod", manifests.superpod())
    roles = [manifests.role("prefill", "Prefill"), manifests.role("decode", "Decode", dp=2, replicas=decode_replicas)]
    world.api.add("ModelDeployment", manifests.deployment(roles=roles))
    return world


async def break_nothing(world: World) -> None:
    """A first start."""


async def kill_die(world: World) -> None:
    """A die under decode dies."""
    await world.settle()
    node, dies = world.place_of(world.engine_pods("chat-decode")[0])
    world.hardware.kill_die(node, dies[0])


async def scale(world: World) -> None:
    """Decode grows by one and prefill shrinks to none."""
    await world.settle()

    def change(obj: manifests.Object) -> None:
        obj["spec"]["roles"][0]["replicas"], obj["spec"]["roles"][1]["replicas"] = 2, 2

    world.api.edit(world.get("ModelDeployment", "chat"), change)


async def update(world: World) -> None:
    """A new checkpoint for everything."""
    await world.settle()
    model = {"name": "tiny", "uri": "file:///models/next"}
    world.api.edit(world.get("ModelDeployment", "chat"), lambda obj: obj["spec"].update(model=model))


async def surge(world: World) -> None:
    """The same, with new instances beside the old ones first."""

    def change(obj: manifests.Object) -> None:
        for role in obj["spec"]["roles"]:
            role["update"] = {"maxUnavailable": 0, "maxSurge": 1}

    world.api.edit(world.get("ModelDeployment", "chat"), change)
    await update(world)


@pytest.mark.parametrize("happens", [break_nothing, kill_die, scale, update, surge])
async def test_dying_at_any_write_changes_nothing_in_the_end(happens) -> None:  # type: ignore[no-untyped-def]
    calm = await start()
    await happens(calm)
    await dying_anywhere_ends_alike(calm)
    assert calm.ready("ModelDeployment", "chat")[0]


async def more_important(world: World) -> None:
    """Another deployment needs both 910C servers whole."""
    await world.settle()
    roles = [manifests.role("prefill", "Prefill"), manifests.role("decode", "Decode", dp=2, tp=16)]
    urgent = manifests.deployment("urgent", roles)
    urgent["spec"]["priority"] = 10
    world.api.add("ModelDeployment", urgent)


async def test_dying_while_dies_change_hands_leaves_them_with_the_more_important() -> None:
    calm = await start()
    await more_important(calm)
    await dying_anywhere_ends_alike(calm)
    assert calm.ready("ModelDeployment", "urgent")[0]
