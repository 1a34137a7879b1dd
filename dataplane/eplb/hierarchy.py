"""Hierarchical clusters: experts of a group live on one server, so each server is a small problem of its own.

Groups are dealt out to servers, as many to each, heaviest first onto the server with least load for its speed; groups
that already live on one server together, as in the placement in force, may stay. The barrier is one over all servers,
but load that cannot cross servers cannot be evened out across them: solving each server alone loses nothing.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eplb.cluster import Cluster
from eplb.errors import Unplannable
from eplb.placement import EMPTY, Placement
from eplb.problem import Problem, Scalar, Slots


@dataclass(frozen=True, eq=False)
class Servers:
    """``experts`` [B, servers, experts a server]: ids of the experts that live on each server."""

    experts: Slots
    cluster: Cluster

    @property
    def _npus(self) -> int:
        return self.cluster.npus // self.cluster.servers

    def split(self, whole: Problem) -> Problem:
        """One layer of the result for each layer and server; experts are renumbered within their server."""
        batch, servers, few = self.experts.shape
        rows = np.arange(batch)[:, None, None]
        local = np.full((batch, servers, whole.mean.shape[1] + 1), EMPTY)
        np.put_along_axis(local, self.experts, np.broadcast_to(np.arange(few), self.experts.shape), 2)
        of_server = local[rows[..., None], np.arange(servers)[:, None, None], self._by_server(whole.start)]

        def flat(array: NDArray[Scalar]) -> NDArray[Scalar]:
            return array.reshape(batch * servers, *array.shape[2:])

        covariance = whole.covariance[rows[..., None], self.experts[..., None], self.experts[:, :, None, :]]
        return replace(
            whole,
            mean=flat(np.take_along_axis(whole.mean[:, None], self.experts, 2)),
            covariance=flat(covariance),
            slices=whole.slices[:, rows, self.experts].reshape(len(whole.slices), batch * servers, few),
            start=flat(of_server),
            open=flat(self._by_server(whole.open)),
            pinned=flat(self._by_server(whole.pinned)),
            rate=flat(self._by_server(whole.rate)),
            background=flat(self._by_server(whole.background)),
        )

    def merge(self, slots: Slots) -> Slots:
        """[B, N, K]: the servers' placements side by side, with the experts' own ids."""
        batch, servers, _ = self.experts.shape
        ids = np.concatenate([self.experts, np.full((batch, servers, 1), EMPTY)], axis=2).reshape(batch * servers, -1)
        named = np.take_along_axis(ids, slots.reshape(batch * servers, -1), 1)  # EMPTY = -1 finds the last column
        return named.reshape(batch, servers * self._npus, -1)

    def _by_server(self, array: NDArray[Scalar]) -> NDArray[Scalar]:
        return array.reshape(len(array), self.cluster.servers, self._npus, *array.shape[2:])


def deal_out(problem: Problem, cluster: Cluster, keep: bool) -> Servers:
    """Which groups live where. ``keep``: stay where the placement in force has them; Unplannable if it has not."""
    experts = problem.mean.shape[1]
    if experts % cluster.expert_groups:
        raise Unplannable(f"{experts} experts cannot be divided into {cluster.expert_groups} groups")
    room = cluster.open_slots().sum(1).reshape(cluster.servers, -1).sum(1)
    if (short := room < experts // cluster.servers).any():
        server = int(short.argmax())
        raise Unplannable(
            f"server {server} has {room[server]} open slots, but must hold {experts // cluster.servers} experts"
        )
    size = experts // cluster.expert_groups
    home = _homes(problem, cluster)
    if not keep and not problem.pinned.any():
        home = _heaviest_first(problem, cluster, size)
    elif home is None:
        raise Unplannable("the placement in force has a group of experts on two servers; plan without a move limit")
    per_server = np.argsort(home, axis=1, kind="stable").reshape(len(home), cluster.servers, -1)
    ids = per_server[..., None] * size + np.arange(size)
    return Servers(ids.reshape(len(home), cluster.servers, -1), cluster)


def _homes(problem: Problem, cluster: Cluster) -> Slots | None:
    """[B, groups]: the server of each group in the placement in force, None if it has none or breaks the rules."""
    start = Placement(problem.start.astype(np.int32), problem.mean.shape[1])
    return np.asarray(start.servers(cluster).argmax(2)) if start.grouped(cluster).all() else None


def _heaviest_first(problem: Problem, cluster: Cluster, size: int) -> Slots:
    batch = len(problem.mean)
    weight = problem.mean.reshape(batch, cluster.expert_groups, size).sum(2)
    speed = cluster.speed().reshape(cluster.servers, -1).sum(1)
    load, free = np.zeros((batch, cluster.servers)), np.full((batch, cluster.servers), 0)
    free += cluster.expert_groups // cluster.servers
    home = np.zeros((batch, cluster.expert_groups), np.int64)
    rows = np.arange(batch)
    for group in np.argsort(-weight, axis=1, kind="stable").T:
        server = np.where(free > 0, load / np.maximum(speed, 1e-30), np.inf).argmin(1)
        home[rows, group] = server
        load[rows, server] += weight[rows, group]
        free[rows, server] -= 1
    return home
