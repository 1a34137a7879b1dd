"""Puts the reconcilers together, and says who is interested in which change.

``interested`` only picks keys; waking too many costs a pass that writes nothing, waking too few is made up for by the
fleet's own rhythm.
"""

import asyncio

from xdeepserve_operator.api import names
from xdeepserve_operator.controllers.admission import Admission
from xdeepserve_operator.controllers.dpgroup import DPGroupReconciler
from xdeepserve_operator.controllers.expert_ear import ExpertRoutes
from xdeepserve_operator.controllers.expertplacement import ExpertPlacementReconciler
from xdeepserve_operator.controllers.faultinjection import FaultInjectionReconciler
from xdeepserve_operator.controllers.fleet import Fleet
from xdeepserve_operator.controllers.history import History
from xdeepserve_operator.controllers.modeldeployment import ModelDeploymentReconciler
from xdeepserve_operator.controllers.objects import label
from xdeepserve_operator.controllers.ports import Clock, Cluster, Engines, Key, Object, Reconciler, Store
from xdeepserve_operator.controllers.preemption import Preemption
from xdeepserve_operator.controllers.routes import RouteKeeper
from xdeepserve_operator.controllers.scalingpolicy import ScalingPolicyReconciler
from xdeepserve_operator.controllers.shells import Shells
from xdeepserve_operator.controllers.superpod import SuperPodReconciler
from xdeepserve_operator.controllers.taskexecutor import TaskExecutorReconciler
from xdeepserve_operator.controllers.trial import Trial
from xdeepserve_operator.controllers.warm import WarmEngines
from xdeepserve_operator.planner.executorstatus import lacks_dies
from xdeepserve_operator.planner.pods import dies_requested
from xdeepserve_operator.planner.recovery import Patience
from xdeepserve_operator.resources.settings import EngineImage


def reconcilers(
    store: Store,
    cluster: Cluster,
    engines: Engines,
    clock: Clock,
    *,
    engine_image: str,
    patience: Patience | None = None,
    experts: ExpertRoutes | None = None,
) -> tuple[Reconciler, ...]:
    """One reconciler a kind, sharing what they must; without ``experts`` none that balances them."""
    image = EngineImage(engine_image)
    history, trial = History(store, cluster), Trial(store, clock)
    fleet, routes = Fleet(engines, clock), RouteKeeper(engines)
    placing = asyncio.Lock()
    patience = patience or Patience()
    warm = WarmEngines(store, cluster, engines, image, placing)
    executors = TaskExecutorReconciler(
        store,
        cluster,
        clock,
        fleet,
        Admission(store, cluster, trial, Preemption(store, cluster, clock), placing, image=image.name),
        Shells(store, cluster, image),
        history,
        trial,
        warm,
        image=image.name,
        patience=patience,
    )
    balancing: tuple[Reconciler, ...] = ()
    if experts is not None:
        one = ExpertPlacementReconciler(store, cluster, clock, fleet, experts, image=image.name, patience=patience)
        balancing = (one,)
    return (
        SuperPodReconciler(store, cluster, clock),
        ModelDeploymentReconciler(store, cluster, clock, routes, history, image=image),
        executors,
        DPGroupReconciler(store, cluster, image, warm),
        FaultInjectionReconciler(store, cluster, clock),
        ScalingPolicyReconciler(store, cluster, clock, fleet, routes),
        *balancing,
    )


def interested(store: Store, kind: str, obj: Object) -> list[Key]:
    """Keys to wake when an object was added, changed or deleted; ``obj`` is its last known state."""
    namespace, name = obj["metadata"].get("namespace"), obj["metadata"]["name"]
    keys = [Key(kind, namespace, name)] if kind not in ("Pod", "Node", "Deployment", "Service") else []
    if kind == "SuperPod":
        keys += _executors_in(store, {name})
    elif kind == "TaskExecutor":
        keys += _labelled(store, obj, ("ModelDeployment", names.LABEL_DEPLOYMENT))
        injections = (one["metadata"] for one in store.list("FaultInjection"))
        keys += [Key("FaultInjection", one["namespace"], one["name"]) for one in injections]
        keys += _gang_of(store, obj)
    elif kind == "DPGroup":
        keys += _labelled(store, obj, ("TaskExecutor", names.LABEL_EXECUTOR))
        if store.get(kind, namespace, name) is None:  # its dies are free now, if its pod went before it
            keys += _room_on(store, obj["spec"]["node"])
    elif kind == "Pod":
        keys += _labelled(store, obj, ("TaskExecutor", names.LABEL_EXECUTOR), ("DPGroup", names.LABEL_GROUP))
        if label(obj, names.LABEL_COMPONENT) == names.COMPONENT_FRONTEND:
            keys += _labelled(store, obj, ("ModelDeployment", names.LABEL_DEPLOYMENT))
        if dies_requested(obj):
            keys += _room_on(store, obj.get("spec", {}).get("nodeName") or "")
    elif kind == "Node":
        superpods = _superpods_of(store, obj)
        keys += [Key("SuperPod", None, superpod) for superpod in sorted(superpods)]
        keys += _executors_in(store, superpods)
    elif kind in ("Deployment", "Service"):
        keys += _labelled(store, obj, ("ModelDeployment", names.LABEL_DEPLOYMENT))
    return list(dict.fromkeys(keys))


def _labelled(store: Store, obj: Object, *owners: tuple[str, str]) -> list[Key]:
    """Keys of the owners that an object's labels name; one that is gone is not told how each of its children goes."""
    keys = [Key(kind, obj["metadata"].get("namespace"), label(obj, by)) for kind, by in owners if label(obj, by)]
    return [key for key in keys if store.get(*key) is not None]


def _room_on(store: Store, node: str) -> list[Key]:
    """Keys of those who count the free dies of a server, or wait for some."""
    superpods = _superpods_of(store, store.get("Node", None, node))
    return [Key("SuperPod", None, superpod) for superpod in sorted(superpods)] + _waiting(store)


def _superpods_of(store: Store, node: Object | None) -> set[str]:
    """SuperPods that a node says it belongs to."""
    claimed = label(node, names.NODE_LABEL_SUPERPOD) if node is not None else ""
    superpods = store.list("SuperPod") if claimed else ()
    return {one["metadata"]["name"] for one in superpods if one["spec"].get("superpodId") == claimed}


def _executors_in(store: Store, superpods: set[str]) -> list[Key]:
    """TaskExecutors that run in these SuperPods."""
    return [
        Key("TaskExecutor", one["metadata"]["namespace"], one["metadata"]["name"])
        for one in store.list("TaskExecutor")
        if one["spec"].get("superPodRef", {}).get("name") in superpods
    ]


def _gang_of(store: Store, executor: Object) -> list[Key]:
    """TaskExecutors of the same gang."""
    namespace, gang = executor["metadata"]["namespace"], executor["spec"].get("gang")
    mates = store.list("TaskExecutor", namespace) if gang else ()
    return [Key("TaskExecutor", namespace, one["metadata"]["name"]) for one in mates if one["spec"].get("gang") == gang]


def _waiting(store: Store) -> list[Key]:
    """TaskExecutors that wait for room."""
    return [
        Key("TaskExecutor", one["metadata"]["namespace"], one["metadata"]["name"])
        for one in store.list("TaskExecutor")
        if lacks_dies(one)
    ]
