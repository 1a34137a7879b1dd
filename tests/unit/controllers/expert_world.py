"""One instance with experts as the operator meets it: its TE-shell counts, takes orders, and reports."""

from __future__ import annotations

from typing import Any

import numpy as np

from eplb import Cluster, LoadWindow, Placement
from eplb.balance import npu_shares
from flowserve.wire import EngineStatus, ExpertState, RankReport, ShellStatus
from flowserve.wire_experts import ExpertHistory, ExpertOrder, ExpertSlice, ExpertTable, ExpertWatch, LayerSlots
from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.experts import ExpertPlacementStatus
from xdeepserve_operator.controllers.expertplacement import ExpertPlacementReconciler
from xdeepserve_operator.controllers.fleet import Fleet
from xdeepserve_operator.planner.pods import PodView
from xdeepserve_operator.planner.recovery import Patience

from . import manifests
from .driver import NAMESPACE
from .fakes import FakeApi, FakeClock

EXPERTS, RANKS, LAYERS, TOP_K = 16, 4, (1, 2, 3), 2
SHELL = {names.LABEL_COMPONENT: names.COMPONENT_SHELL}
PLAIN = tuple(tuple(range(4 * rank, 4 * rank + 4)) for rank in range(RANKS))


class FakeInstance(Fleet):
    """Implements ExpertRoutes, and what the reconciler asks of the fleet. Orders wait until ``finish`` or ``fail``."""

    def __init__(self) -> None:
        self.slots = dict.fromkeys(LAYERS, PLAIN)
        self.state = ExpertState()
        self.groups = 1  # of the gate
        self.epoch, self.iterations, self.ready, self.incarnation = 1, 0, True, "shell-1"
        self.order_: ExpertOrder | None = None
        self.orders: list[ExpertOrder] = []
        self.called_off: list[int] = []
        self.refusal: str | None = None  # an order reaches no rank; empty: nobody says why
        self.refused = ""
        self.silent = False
        self.watched: ExpertWatch | None = None
        self.slices: list[ExpertSlice] = []
        self.load = np.array([20, 15, 2, 2] + [1] * 12, float)

    def count(self, tokens: int = 1000) -> None:
        """An interval passes under load."""
        chosen = np.tile(np.round(self.load / self.load.sum() * tokens * TOP_K), (len(LAYERS), 1))
        width = max(len(rank) for layer in self.slots.values() for rank in layer)
        slots = np.full((len(LAYERS), RANKS, width), -1)
        for row, layer in enumerate(LAYERS):
            slots[row, :, : len(self.slots[layer][0])] = self.slots[layer]
        shares = npu_shares(LoadWindow.of(chosen[None]), Placement.of(slots, EXPERTS), Cluster(RANKS, width))[0]
        served = (shares * chosen.sum(1, keepdims=True)).round().astype(int)
        self.iterations += 10
        self.slices.append(
            ExpertSlice(
                sequence=len(self.slices) + 1,
                seconds=60.0,
                epoch=self.epoch,
                version=self.state.version,
                chosen=tuple(tuple(int(one) for one in layer) for layer in chosen),
                served=tuple(tuple(int(one) for one in rank) for rank in served.T),
            )
        )

    def finish(self) -> None:
        """All ranks take the order up."""
        assert self.order_ is not None
        self.slots |= {each.layer: each.slots for each in self.order_.layers}
        self.state = self.state.model_copy(
            update={"version": self.order_.version, "target": 0, "phase": "Idle", "swaps": self.state.swaps + 1}
        )
        self.order_ = None

    def fail(self, error: str = "the link broke") -> None:
        """The ranks roll the order back."""
        assert self.order_ is not None
        self.state = ExpertState(version=self.state.version, given_up=self.order_.version, error=error)
        self.order_ = None

    def new_epoch(self, *, plain: bool) -> None:
        """A rank was replaced; ``plain``: the ranks did not all have the placement."""
        self.epoch += 1
        self.order_ = None
        if plain:
            self.slots = dict.fromkeys(LAYERS, PLAIN)
        self.state = ExpertState(version=0 if plain else self.state.version)

    # the fleet

    def last(self, shell: PodView) -> ShellStatus | None:
        if self.silent:
            return None
        status = EngineStatus(
            name="e",
            incarnation="i",
            fabric_uri="u",
            state="Serving",
            epoch=self.epoch,
            iterations=self.iterations,
            experts=self.state,
        )
        ranks = tuple(
            RankReport(rank=rank, host="h", silent_seconds=0.0, ever_heard=True, status=status) for rank in range(RANKS)
        )
        return ShellStatus(
            instance="chat-decode-0",
            incarnation=self.incarnation,
            epoch=self.epoch,
            ranks=ranks,
            ready=self.ready,
            refused_order=self.refused,
        )

    # ExpertRoutes

    async def watch(self, host: str, token: str, watch: ExpertWatch) -> bool:
        self.watched = watch
        return True

    async def history(self, host: str, token: str, after: int) -> ExpertHistory | None:
        slices = tuple(one for one in self.slices if one.sequence > after)
        return ExpertHistory(incarnation=self.incarnation, layers=LAYERS, slices=slices)

    async def table(self, host: str, token: str) -> ExpertTable | None:
        return ExpertTable(
            epoch=self.epoch,
            version=self.state.version,
            top_k=TOP_K,
            experts=EXPERTS,
            groups=self.groups,
            expert_bytes=1 << 20,
            layers=tuple(LayerSlots(layer=layer, slots=slots) for layer, slots in self.slots.items()),
        )

    async def order(self, host: str, token: str, order: ExpertOrder) -> bool:
        assert (order.instance, order.epoch) == ("chat-decode-0", self.epoch)
        assert order.version > max(self.state.version, self.state.given_up)
        self.orders.append(order)
        if self.refusal is not None:
            self.refused = self.refusal
            return True
        self.order_, self.refused = order, ""
        self.state = self.state.model_copy(update={"target": order.version, "phase": "Prefetch"})
        return True

    async def call_off(self, host: str, token: str, version: int) -> bool:
        self.called_off.append(version)
        if self.order_ is not None:
            self.fail("called off")
        return True


class ExpertWorld:
    """The operator's side: objects, and a reconciler over them."""

    def __init__(self, **spec: Any) -> None:
        self.clock = FakeClock()
        self.api = FakeApi(self.clock)
        self.instance = FakeInstance()
        executor = self.api.add("TaskExecutor", manifests.executor("chat-decode", dp=RANKS))
        self.executor_status(readyReason="Ready")
        labels = {names.LABEL_EXECUTOR: "chat-decode", names.LABEL_REPLICA: "0"}
        self.api.add(
            "Pod",
            {
                "metadata": {"name": "chat-decode-0-shell", "namespace": NAMESPACE, "labels": labels | SHELL},
                "spec": {},
                "status": {"phase": "Running", "podIP": "127.0.0.9"},
            },
        )
        self.api.add(
            "ExpertPlacement",
            {
                "apiVersion": names.API_VERSION,
                "metadata": {"name": "chat", "namespace": NAMESPACE},
                "spec": {"targetRef": {"name": executor["metadata"]["name"]}, **spec},
            },
        )
        self.start_operator()

    def executor_status(self, *, readyReason: str) -> None:  # noqa: N803
        executor = self.api.get("TaskExecutor", NAMESPACE, "chat-decode")
        assert executor is not None

        def change(obj: manifests.Object) -> None:
            condition = {
                "type": "Ready",
                "status": "True" if readyReason == "Ready" else "False",
                "reason": readyReason,
                "message": "",
                "lastTransitionTime": "2025-01-01T00:00:00.000Z",
                "observedGeneration": 1,
            }
            instance = {"index": 0, "ready": True, "epoch": 1, "revision": "r"}
            obj["status"] = {"conditions": [condition], "instances": [instance]}

        self.api.edit(executor, change)

    def place_ranks(self) -> None:
        """Every rank gets a DPGroup and an engine pod on die 0 of a server of its own."""
        for rank in range(RANKS):
            name, node = f"chat-decode-0-dp{rank}", f"server-{rank}"
            labels = {names.LABEL_EXECUTOR: "chat-decode", names.LABEL_REPLICA: "0"}
            spec = {"executorRef": {"name": "chat-decode"}, "replica": 0, "index": rank, "dies": 1}
            spec |= {"role": "Decode", "module": "Full", "chip": "910C", "node": node, "attempt": 0, "revision": "r"}
            metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
            self.api.add("DPGroup", {"metadata": metadata, "spec": spec})
            engine = {names.LABEL_COMPONENT: names.COMPONENT_ENGINE, names.LABEL_GROUP: name, names.LABEL_ATTEMPT: "0"}
            metadata = {"name": f"{name}-0", "namespace": NAMESPACE, "labels": labels | engine}
            metadata["annotations"] = {names.POD_ANNOTATION_DIES: names.die_name(0)}
            status = {"phase": "Running", "podIP": "h"}
            self.api.add("Pod", {"metadata": metadata, "spec": {"nodeName": node}, "status": status})
            self.api.add("Node", {"metadata": {"name": node}, "status": {"conditions": [_ready("True")]}})

    def report_die(self, rank: int, *, unhealthy: bool) -> None:
        """The server of a rank says how its die is; the engine goes on. There is no room for another."""
        annotations = {names.NODE_ANNOTATION_UNHEALTHY: names.die_name(0) if unhealthy else ""}
        self.api.edit(self._node(rank), lambda obj: obj["metadata"].update(annotations=annotations))
        self.executor_status(readyReason="Faulted" if unhealthy else "Ready")

    def report_server(self, rank: int, ready: str) -> None:
        """The server of a rank says how it is, or nobody hears it (Unknown)."""
        self.api.edit(self._node(rank), lambda obj: obj["status"].update(conditions=[_ready(ready)]))

    def holds(self, rank: int) -> bool:
        """Whether a rank holds any expert."""
        return any(max(slots[rank]) >= 0 for slots in self.instance.slots.values())

    def _node(self, rank: int) -> manifests.Object:
        found = self.api.get("Node", None, f"server-{rank}")
        assert found is not None
        return found

    def start_operator(self) -> None:
        """A new process, which remembers nothing."""
        self.reconciler = ExpertPlacementReconciler(
            self.api, self.api, self.clock, self.instance, self.instance, image="image", patience=Patience()
        )

    async def look(self, times: int = 1) -> ExpertPlacementStatus:
        for _ in range(times):
            await self.reconciler.reconcile(NAMESPACE, "chat")
            self.clock.advance(2)
        return self.status

    async def settle(self) -> ExpertPlacementStatus:
        """Looks and finishes orders until nothing is on its way."""
        await self.look()
        while self.instance.order_ is not None:
            self.instance.finish()
            await self.look()
        return await self.look()

    def edit(self, **spec: Any) -> None:
        self.api.edit(self.placement, lambda obj: obj["spec"].update(spec))

    @property
    def placement(self) -> manifests.Object:
        found = self.api.get("ExpertPlacement", NAMESPACE, "chat")
        assert found is not None
        return found

    @property
    def status(self) -> ExpertPlacementStatus:
        return ExpertPlacementStatus.model_validate(self.placement["status"])

    def condition(self, kind: str) -> tuple[str, str]:
        one = next(one for one in self.status.conditions if one.type == kind)
        return one.status, one.reason


def _ready(status: str) -> manifests.Object:
    return {"type": "Ready", "status": status}
