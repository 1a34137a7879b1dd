"""Emulated servers under the fake API server: a scheduler, kubelets and engines, one step at a time.

Servers know nothing of the operator: they bind pods, hand out healthy dies, start engines, and break when told to.
"""

from collections.abc import Callable
from typing import Any

from flowserve.wire import (
    EngineConfig,
    FrontendStatus,
    Membership,
    RankReport,
    Roster,
    Routes,
    ShellStatus,
)
from xdeepserve_operator.api import names
from xdeepserve_operator.planner.conditions import format_time
from xdeepserve_operator.planner.pods import dies_requested
from xdeepserve_operator.planner.servers import node_health

from ..planner import builders
from .fakes import FakeApi, Object
from .process import Process


class Hardware:
    """All servers of a SuperPod, and the ``Engines`` client that reaches what runs on them."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.processes: dict[str, Process] = {}  # by pod uid
        self.lost: set[str] = set()
        self.hung_dies: set[tuple[str, int]] = set()
        self.broken_model: str | None = None  # engines of this checkpoint exit with 78
        self.refusing: set[str] = set()  # servers that the scheduler does not use, for reasons of its own
        self.frozen: set[str] = set()  # pods whose processes do not answer
        self.puts: list[tuple[str, Any]] = []
        self._addresses = 0
        self._lives = 0

    # Servers

    def add_server(self, name: str, chip: str, **labels: str) -> Object:
        return self.api.add("Node", builders.node(name, chip, **labels))

    def kill_die(self, node: str, die: int) -> None:
        """The die fails: its processes die, the server reports it."""
        for pod in self._pods_on(node):
            if die in names.parse_dies(pod["metadata"].get("annotations", {}).get(names.POD_ANNOTATION_DIES)):
                self.stop(pod, exit_code=137)

        def report(obj: Object) -> None:
            bad = obj["metadata"].setdefault("annotations", {}).get(names.NODE_ANNOTATION_UNHEALTHY, "")
            marked = ",".join(filter(None, [bad, names.die_name(die)]))
            obj["metadata"]["annotations"][names.NODE_ANNOTATION_UNHEALTHY] = marked
            left = int(obj["status"]["allocatable"][names.RESOURCE_DIE]) - 1
            obj["status"]["allocatable"][names.RESOURCE_DIE] = str(left)

        self.api.edit(self._node(node), report)

    def hang_die(self, node: str, die: int) -> None:
        """Processes on the die stop answering; the server notices nothing."""
        self.hung_dies.add((node, die))

    def lose(self, node: str) -> None:
        """The server falls silent with everything on it."""
        self.lost.add(node)
        for pod in self._pods_on(node):
            self.processes.pop(pod["metadata"]["uid"], None)
        self.api.edit(self._node(node), lambda obj: obj["status"].update(conditions=[_ready("Unknown")]))

    def stop(self, pod: Object, *, exit_code: int = 1, message: str = "") -> None:
        """The pod's container ends; the kubelet starts it again at the next step unless the die is dead."""
        self.processes.pop(pod["metadata"]["uid"], None)
        ended = {"exitCode": exit_code, "message": message}
        state = [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": ended}}]
        self.api.edit(pod, lambda obj: obj["status"].update(containerStatuses=state, conditions=_conditions(False)))

    # One moment

    def step(self) -> None:
        """Everything moves on a little."""
        self.api.settle_deletions()
        self.api.collect_garbage()
        self._roll_out()
        for pod in self.api.list("Pod", None, {names.LABEL_MANAGED_BY: names.MANAGED_BY}):
            self._move(pod)
        alive = {pod["metadata"]["uid"] for pod in self.api.list("Pod")}
        self.processes = {uid: process for uid, process in self.processes.items() if uid in alive}
        self._talk()
        for pod in self.api.list("Pod"):
            self._probe(pod)

    def _move(self, pod: Object) -> None:
        node = pod["spec"].get("nodeName")
        if not node:
            self._schedule(pod)
        elif node in self.lost:
            return
        elif "deletionTimestamp" in pod["metadata"]:
            self.api.remove(pod)
        elif pod.get("status", {}).get("phase") != "Failed" and pod["metadata"]["uid"] not in self.processes:
            self._start(pod)

    def _schedule(self, pod: Object) -> None:
        wanted = dies_requested(pod)
        for node in self.api.list("Node"):
            name = node["metadata"]["name"]
            pinned = _pinned(pod)
            if pinned not in ("", name) or not node_health(node).schedulable or name in self.refusing:
                continue
            taken = sum(map(dies_requested, self._pods_on(name)))
            if taken + wanted <= int(node["status"]["allocatable"][names.RESOURCE_DIE]):
                self.api.edit(pod, lambda obj, name=name: obj["spec"].update(nodeName=name))
                return
        if not pod.get("status", {}).get("conditions"):
            since = format_time(self.api.clock.now())
            waiting = [{"type": "PodScheduled", "status": "False", "lastTransitionTime": since}]
            self.api.edit(pod, lambda obj: obj.update(status={"phase": "Pending", "conditions": waiting}))

    def _start(self, pod: Object) -> None:
        node, wanted = pod["spec"]["nodeName"], dies_requested(pod)
        bad = node_health(self._node(node)).unhealthy
        held = names.parse_dies(pod["metadata"].get("annotations", {}).get(names.POD_ANNOTATION_DIES))
        if held & bad:
            return
        taken = {
            die
            for other in self._pods_on(node)
            for die in names.parse_dies(other["metadata"].get("annotations", {}).get(names.POD_ANNOTATION_DIES))
        }
        capacity = int(self._node(node)["status"]["capacity"][names.RESOURCE_DIE])
        dies = sorted(held) or [die for die in range(capacity) if die not in taken | bad][:wanted]
        self._addresses += 1
        number = self._addresses
        address = pod.get("status", {}).get("podIP") or f"127.1.{number // 250}.{number % 250 + 1}"
        started = format_time(self.api.clock.now())

        def run(obj: Object) -> None:
            if dies:
                marks = ",".join(map(names.die_name, dies))
                obj["metadata"].setdefault("annotations", {})[names.POD_ANNOTATION_DIES] = marks
            before = obj.get("status", {}).get("containerStatuses", [{}])[0].get("lastState", {})
            obj["status"] = {
                "phase": "Running",
                "podIP": address,
                "containerStatuses": [
                    {"state": {"running": {"startedAt": started}}, "lastState": before, "started": True}
                ],
                "conditions": _conditions(False),
            }

        pod = self.api.edit(pod, run)
        environment = {one["name"]: one.get("value", "") for one in pod["spec"]["containers"][0]["env"]}
        if self.broken_model and self.broken_model in environment[names.ENV_ENGINE_CONFIG] and wanted:
            self.stop(pod, exit_code=78, message="loading\nxdeepserve: CheckpointMissing: no config.json there\n")
            return
        self._lives += 1
        process = Process(pod, self._lives, self.api.clock.monotonic())
        process.hung = any((node, die) in self.hung_dies for die in dies)
        self.processes[pod["metadata"]["uid"]] = process

    def _probe(self, pod: Object) -> None:
        process = self.processes.get(pod["metadata"]["uid"])
        if process is None or pod["spec"].get("nodeName") in self.lost:
            return
        ready = {
            names.COMPONENT_ENGINE: process.joined,
            names.COMPONENT_WARM: False,
            names.COMPONENT_SHELL: self._shell_ready(process),
            names.COMPONENT_FRONTEND: bool(process.routes and len({one.role for one in process.routes.targets}) == 2),
        }[process.component]
        conditions = _conditions(ready)
        if pod["status"]["conditions"] != conditions:
            self.api.edit(pod, lambda obj: obj["status"].update(conditions=conditions))

    def _roll_out(self) -> None:
        """The Deployment controller, for Deployments whose template never changes."""
        for deployment in self.api.list("Deployment"):
            metadata, spec = deployment["metadata"], deployment["spec"]
            labels = spec["template"]["metadata"]["labels"]
            selector = spec["selector"]["matchLabels"]
            pods = self.api.list("Pod", metadata["namespace"], selector)
            owner = {"uid": metadata["uid"], "controller": True}
            for number in range(len(pods), spec["replicas"]):
                self.api.add(
                    "Pod",
                    {
                        "metadata": {
                            "name": f"{metadata['name']}-{number}",
                            "namespace": metadata["namespace"],
                            "labels": labels,
                            "ownerReferences": [owner],
                        },
                        "spec": spec["template"]["spec"],
                    },
                )
            ready = sum(one.get("status", {}).get("conditions") == _conditions(True) for one in pods)
            status = {
                "observedGeneration": metadata["generation"],
                "replicas": spec["replicas"],
                "updatedReplicas": spec["replicas"],
                "readyReplicas": ready,
            }
            self.api.edit(deployment, lambda obj, status=status: obj.update(status=status))

    # Engines among themselves

    def _talk(self) -> None:
        now = self.api.clock.monotonic()
        by_host = {process.host: process for process in self.processes.values()}
        for process in self.processes.values():
            node, dies = self._place(process.uid)
            process.hung = process.name in self.frozen or any((node, die) in self.hung_dies for die in dies)
        for shell in self._running(names.COMPONENT_SHELL):
            for rank, host in shell.roster.items():
                engine = by_host.get(host)
                if engine is not None and not engine.hung:
                    shell.heard[rank, host] = (now, engine.engine_status())
                    self._spread(shell, engine)
        for engine in self._running(names.COMPONENT_ENGINE):
            if engine.membership is None or engine.hung:
                continue
            peers = [by_host.get(member.host) for member in engine.membership.members]
            together = all(
                peer is not None and not peer.hung and peer.incarnation == member.incarnation
                for peer, member in zip(peers, engine.membership.members, strict=True)
            )
            agreed = together and all(peer and peer.membership == engine.membership for peer in peers)
            if not together and engine.joined:
                engine.joined, engine.broken = False, True
            elif agreed and not engine.broken:
                engine.joined = True

    def _spread(self, shell: Process, engine: Process) -> None:
        membership = shell.membership
        mine = membership and any(member.incarnation == engine.incarnation for member in membership.members)
        if membership and mine and (engine.membership is None or engine.membership.epoch < membership.epoch):
            engine.membership, engine.joined, engine.broken = membership, False, False

    def _shell_ready(self, shell: Process) -> bool:
        if shell.membership is None or shell.component != names.COMPONENT_SHELL:
            return False
        heard = {status.incarnation: status for _, status in shell.heard.values() if status is not None}
        states = [heard.get(member.incarnation) for member in shell.membership.members]
        return all(one and one.state == "Serving" and one.epoch == shell.membership.epoch for one in states)

    # The Engines client

    async def shell_status(self, host: str, token: str) -> ShellStatus | None:
        shell = self._answering(host, names.COMPONENT_SHELL)
        if shell is None:
            return None
        now = self.api.clock.monotonic()
        entries = [(rank, one, shell.heard.get((rank, one))) for rank, one in sorted(shell.roster.items())]
        return ShellStatus(
            instance=shell.name.removesuffix("-shell"),
            incarnation=shell.incarnation,
            epoch=shell.membership.epoch if shell.membership else 0,
            ranks=tuple(
                RankReport(
                    rank=rank,
                    host=one,
                    silent_seconds=now - (heard[0] if heard else shell.started),
                    ever_heard=heard is not None,
                    status=heard[1] if heard else None,
                )
                for rank, one, heard in entries
            ),
            ready=self._shell_ready(shell),
        )

    async def put_assignment(self, host: str, token: str, config: EngineConfig) -> bool:
        engine = next((one for one in self.processes.values() if one.host == host and not one.hung), None)
        if engine is None or engine.component not in (names.COMPONENT_WARM, names.COMPONENT_ENGINE):
            return False
        if engine.assigned is None and engine.component == names.COMPONENT_WARM:
            engine.assigned, engine.component = config, names.COMPONENT_ENGINE
        return engine.assigned == config

    async def frontend_status(self, host: str, token: str) -> FrontendStatus | None:
        frontend = self._answering(host, names.COMPONENT_FRONTEND)
        if frontend is None:
            return None
        return FrontendStatus(
            incarnation=frontend.incarnation,
            epoch=frontend.routes.epoch if frontend.routes else 0,
            refused=frontend.refused,
            first_token=frontend.first_token,
        )

    async def put_roster(self, host: str, token: str, roster: Roster) -> bool:
        return self._put(host, roster, lambda shell: setattr(shell, "roster", {e.rank: e.host for e in roster.entries}))

    async def put_membership(self, host: str, token: str, membership: Membership) -> bool:
        return self._put_dated(host, "membership", membership)

    async def put_routes(self, host: str, token: str, routes: Routes) -> bool:
        return self._put_dated(host, "routes", routes)

    def _put_dated(self, host: str, slot: str, message: Membership | Routes) -> bool:
        process = self._answering(host)
        current = getattr(process, slot, None)
        refused = current is not None and (
            message.epoch < current.epoch or (message.epoch == current.epoch and message != current)
        )
        return not refused and self._put(host, message, lambda one: setattr(one, slot, message))

    def _put(self, host: str, message: Any, take: Callable[[Process], None]) -> bool:
        process = self._answering(host)
        if process is None:
            return False
        self.puts.append((host, message))
        take(process)
        return True

    def _answering(self, host: str, component: str | None = None) -> Process | None:
        found = (one for one in self.processes.values() if one.host == host and component in (None, one.component))
        process = next(found, None)
        return None if process is None or process.hung else process

    # Looking things up

    def _running(self, component: str) -> list[Process]:
        return [process for process in self.processes.values() if process.component == component]

    def _place(self, uid: str) -> tuple[str, frozenset[int]]:
        pod = next(pod for pod in self.api.list("Pod") if pod["metadata"]["uid"] == uid)
        marks = pod["metadata"].get("annotations", {}).get(names.POD_ANNOTATION_DIES)
        return pod["spec"]["nodeName"], names.parse_dies(marks)

    def _pods_on(self, node: str) -> list[Object]:
        return [
            pod
            for pod in self.api.list("Pod")
            if pod["spec"].get("nodeName") == node and pod.get("status", {}).get("phase") != "Failed"
        ]

    def _node(self, name: str) -> Object:
        node = self.api.get("Node", None, name)
        assert node is not None
        return node


def _ready(status: str) -> Object:
    return {"type": "Ready", "status": status}


def _conditions(ready: bool) -> list[Object]:
    return [{"type": "PodScheduled", "status": "True"}, _ready(str(ready))]


def _pinned(pod: Object) -> str:
    affinity = pod["spec"].get("affinity")
    if not affinity:
        return ""
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    value: str = terms[0]["matchFields"][0]["values"][0]
    return value
