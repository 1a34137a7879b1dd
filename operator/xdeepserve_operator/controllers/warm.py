"""Warm engines: kept by TaskExecutors while nobody lacks dies, assigned to DP groups that were placed on their servers.

The engine is told first and the pod is marked second: cut off in between, the same group finds the same engine again,
which takes the same assignment twice and no other. An engine that refuses is deleted, and the group gets a pod that
starts from cold.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from xdeepserve_operator.api import names
from xdeepserve_operator.controllers.objects import delete_pod, label
from xdeepserve_operator.controllers.ports import Cluster, Engines, Object, Store
from xdeepserve_operator.controllers.snapshot import Executor, groups_of, pods_of, servers_of
from xdeepserve_operator.planner import warm
from xdeepserve_operator.planner.conditions import READY, is_true
from xdeepserve_operator.planner.executorstatus import lacks_dies
from xdeepserve_operator.planner.groups import view_group
from xdeepserve_operator.planner.packing import Block
from xdeepserve_operator.planner.placement import Request, Shortfall, place, take
from xdeepserve_operator.resources import children
from xdeepserve_operator.resources.revision import Template
from xdeepserve_operator.resources.settings import EngineImage
from xdeepserve_operator.resources.warm import adopted, assignment, warm_pod

HURRIED_GRACE_SECONDS = 1  # it does no work that could be lost


class WarmEngines:
    """Warm engines of all TaskExecutors; ``placing`` is held while places are given out."""

    def __init__(
        self, store: Store, cluster: Cluster, engines: Engines, image: EngineImage, placing: asyncio.Lock
    ) -> None:
        self._store, self._cluster, self._engines = store, cluster, engines
        self._image, self._placing = image, placing

    async def adopt(self, executor: Executor, group: Object) -> bool:
        """Makes a waiting engine on the DPGroup's server be the group; False when there is none that wants to."""
        if not self._any_on(group["spec"]["node"], executor):
            return False
        name, revision = group["metadata"]["name"], group["spec"]["revision"]
        template = executor.template(revision)
        pod = warm.engaged(groups_of(self._store, executor), pods_of(self._store, executor)).get(name)
        if template is None or pod is None:
            return False
        token = await self._cluster.token(executor.namespace, executor.token_secret, executor.obj)
        config = assignment(executor.obj, template.spec, group, pod.ip, self.donor(executor, group))
        if not await self._engines.put_assignment(pod.ip, token, config):
            await delete_pod(self._store, self._cluster, pod, HURRIED_GRACE_SECONDS)
            return False
        body = self._body(executor, template, revision, pod.name, pod.node)
        await self._cluster.apply("Pod", adopted(body, executor.obj, group))
        return True

    def donor(self, executor: Executor, group: Object) -> str:
        """Address of the engine whose weights the DPGroup starts with; empty for those on the disk."""
        if executor.spec.weights_from == "Disk":
            return ""
        return warm.donor(view_group(group), pods_of(self._store, executor))

    async def keep(self, executor: Executor) -> None:
        """Makes as many be there as are asked for, if there is room for them."""
        pods = pods_of(self._store, executor)
        target, wanted = executor.goal.target, executor.spec.warm
        for pod in warm.superfluous(pods, target, wanted):
            await delete_pod(self._store, self._cluster, pod)
        present = sum(pod.component == names.COMPONENT_WARM and pod.alive and pod.revision == target for pod in pods)
        template = executor.template(target)
        if present < wanted and template is not None and is_true(executor.obj, READY) and not self._hungry(executor):
            async with self._placing:
                await self._add(executor, template, wanted - present)

    async def _add(self, executor: Executor, template: Template, count: int) -> None:
        superpod, spec = executor.spec.superpod_ref.name, template.spec
        servers = servers_of(self._store, superpod) or ()
        for _ in range(count):
            name = children.warm_name(executor.name, warm.next_number(pods_of(self._store, executor)))
            request = Request(spec.role, superpod, tuple(spec.chips), (Block(name, spec.parallelism.tp),))
            plan = place(servers, [request])
            if isinstance(plan, Shortfall):
                return
            servers = take(servers, plan, [request])
            node = plan.spots[name].node
            await self._cluster.apply("Pod", self._body(executor, template, executor.goal.target, name, node))

    def _body(self, executor: Executor, template: Template, revision: str, name: str, node: str) -> Object:
        image = replace(self._image, name=template.image)
        return warm_pod(executor.obj, template.spec, revision, name, node, executor.token_secret, image)

    def _any_on(self, node: str, executor: Executor) -> bool:
        """Whether a warm engine is there at all; asked for every group of hundreds, so it must not look at them all."""
        warm_pods = self._store.list("Pod", executor.namespace, {names.LABEL_COMPONENT: names.COMPONENT_WARM})
        mine = (pod for pod in warm_pods if label(pod, names.LABEL_EXECUTOR) == executor.name)
        return any(pod["spec"].get("nodeName") == node for pod in mine)

    def _hungry(self, executor: Executor) -> bool:
        """Whether anybody in the SuperPod waits for dies."""
        superpod = executor.spec.superpod_ref.name
        return any(
            lacks_dies(one)
            for one in self._store.list("TaskExecutor")
            if one["spec"].get("superPodRef", {}).get("name") == superpod
        )


async def give_way(store: Store, cluster: Cluster, engines: Iterable[warm.Idle]) -> None:
    """Deletes warm engines whose dies somebody needs (see planner.warm)."""
    for engine in engines:
        await delete_pod(store, cluster, engine, HURRIED_GRACE_SECONDS)
