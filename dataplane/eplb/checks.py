"""What cannot be planned, found out before any work is done, and why."""

import numpy as np
from numpy.typing import NDArray

from eplb.cluster import Cluster
from eplb.errors import Unplannable
from eplb.load import LoadWindow
from eplb.placement import EMPTY, Placement

FROM_CURRENT = ("incremental", "none")  # policies that start from the placement in force
UNLIMITED = ("greedy", "activated")  # policies that ignore it


def check_input(
    window: LoadWindow,
    cluster: Cluster,
    current: Placement | None,
    pinned: NDArray[np.bool_] | None,
    name: str,
    moves: int | None,
) -> None:
    """Unplannable if no plan can satisfy this; ``name`` is the policy's, ``moves`` its limit."""
    shape = (window.layers, cluster.npus, cluster.width)
    room = int(cluster.open_slots().sum())
    if room < window.experts:
        raise Unplannable(f"{window.experts} experts do not fit into {room} open slots; add NPUs or slots")
    if moves is not None and moves < 0:
        raise Unplannable(f"a limit of {moves} moves is negative")
    if moves is not None and name in UNLIMITED:
        raise Unplannable(f"policy {name!r} knows no limit of moves; 'search' and 'incremental' do")
    if current is None:
        if name in FROM_CURRENT or moves is not None or pinned is not None:
            raise Unplannable(f"policy {name!r}, moves {moves} or pins need the placement in force")
        return
    if current.slots.shape != shape or current.experts != window.experts:
        raise Unplannable(
            f"the placement in force is {current.slots.shape} of {current.experts} experts; load and cluster need "
            f"{shape} of {window.experts}"
        )
    if pinned is None:
        return
    if pinned.shape not in (shape, shape[1:]) or pinned.dtype != np.bool_:
        raise Unplannable(
            f"pinned must be booleans [npus, slots] = {shape[1:]}, or those of every layer; it is {pinned.dtype} "
            f"{pinned.shape}"
        )
    held = pinned & (current.slots != EMPTY)
    if (held & ~cluster.open_slots()).any():
        npu = int(np.argwhere(held & ~cluster.open_slots())[0][1])
        raise Unplannable(f"NPU {npu} has a pinned expert, but is excluded or has no such slot")
    kept = Placement(np.where(held, current.slots, EMPTY).astype(np.int32), window.experts)
    if kept.duplicates():
        raise Unplannable("pinned slots hold an expert twice on one NPU")
    needed = (kept.copies() == 0).sum(1)
    free = cluster.open_slots().sum() - held.sum((1, 2))
    if (needed > free).any():
        layer = int((needed > free).argmax())
        raise Unplannable(f"layer {layer}: {needed[layer]} experts need a slot, and {free[layer]} are not pinned")
