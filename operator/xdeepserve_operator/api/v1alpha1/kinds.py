"""The kinds as the API server is told of them: names, scope, types, printer columns, rules on names.

A custom resource's name may be 253 characters with dots, but the names of its children are made from it and become
pod names, label values and Service names of at most 63. So every kind bounds its name, and the bounds nest:
ModelDeployment 30, TaskExecutor ``<deployment>-<role of 15>`` 46, DPGroup ``<executor>-<replica>-dp<index>`` 57,
engine pod ``<group>-<attempt>`` 63.
"""

from dataclasses import dataclass
from typing import Literal

from xdeepserve_operator.api.v1alpha1.base import ApiModel, Rule
from xdeepserve_operator.api.v1alpha1.deployment import ModelDeploymentSpec, ModelDeploymentStatus
from xdeepserve_operator.api.v1alpha1.executor import TaskExecutorSpec, TaskExecutorStatus
from xdeepserve_operator.api.v1alpha1.experts import ExpertPlacementSpec, ExpertPlacementStatus
from xdeepserve_operator.api.v1alpha1.fault import FaultInjectionSpec, FaultInjectionStatus
from xdeepserve_operator.api.v1alpha1.group import DPGroupSpec, DPGroupStatus
from xdeepserve_operator.api.v1alpha1.scaling import ScalingPolicySpec, ScalingPolicyStatus
from xdeepserve_operator.api.v1alpha1.superpod import SuperPodSpec, SuperPodStatus


@dataclass(frozen=True)
class Column:
    """A column of ``kubectl get``; a wide one is shown with ``-o wide`` only."""

    name: str
    path: str
    description: str
    type: Literal["string", "integer", "date"] = "string"
    wide: bool = False


@dataclass(frozen=True)
class Kind:
    """One custom resource. ``scalable`` adds ``/scale`` over spec.replicas, status.replicas and status.selector.

    ``selectable``: paths of fields that field selectors may name.
    """

    kind: str
    plural: str
    short_names: tuple[str, ...]
    scope: Literal["Namespaced", "Cluster"]
    description: str
    spec: type[ApiModel]
    status: type[ApiModel]
    columns: tuple[Column, ...]
    rules: tuple[Rule, ...]
    scalable: bool = False
    selectable: tuple[str, ...] = ()

    @property
    def singular(self) -> str:
        """The name for one object on the command line."""
        return self.kind.lower()


def _name_rules(longest: int, why: str) -> tuple[Rule, ...]:
    """Bounds metadata.name, the one field besides spec and status that a CRD's rules can see."""
    return (
        Rule(f"size(self.metadata.name) <= {longest}", f"at most {longest} characters, {why}", ".metadata.name"),
        Rule(
            "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            "lower-case letters, digits and '-' only, from a letter to a letter or digit",
            ".metadata.name",
        ),
    )


def _condition(type_: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{type_}")].{field}'


def _dies(chip: str, field: str) -> str:
    return f'.status.dies[?(@.chip=="{chip}")].{field}'


_READY = (
    Column("Ready", _condition("Ready", "status"), "Whether everything asked for serves."),
    Column("Reason", _condition("Ready", "reason"), "Why it is ready or not."),
)
_AGE = Column("Age", ".metadata.creationTimestamp", "Time since creation.", type="date")

SUPERPOD = Kind(
    kind="SuperPod",
    plural="superpods",
    short_names=("spod",),
    scope="Cluster",
    description="The servers of one UB domain and the 910B servers beside it, as the admin declares them.",
    spec=SuperPodSpec,
    status=SuperPodStatus,
    columns=(
        *_READY,
        Column("910B", _dies("910B", "capacity"), "Dies on 910B servers.", type="integer"),
        Column("910B-Used", _dies("910B", "allocated"), "910B dies held by pods.", type="integer"),
        Column("910C", _dies("910C", "capacity"), "Dies on 910C servers.", type="integer"),
        Column("910C-Used", _dies("910C", "allocated"), "910C dies held by pods.", type="integer"),
        Column("910B-Faulted", _dies("910B", "faulted"), "Unhealthy 910B dies.", type="integer", wide=True),
        Column("910C-Faulted", _dies("910C", "faulted"), "Unhealthy 910C dies.", type="integer", wide=True),
        Column(
            "910B-Block", _dies("910B", "largestFreeBlock"), "Most free dies on a 910B server.", "integer", wide=True
        ),
        Column(
            "910C-Block", _dies("910C", "largestFreeBlock"), "Most free dies on a 910C server.", "integer", wide=True
        ),
        _AGE,
    ),
    rules=_name_rules(63, "as in every field that refers to it"),
)

MODEL_DEPLOYMENT = Kind(
    kind="ModelDeployment",
    plural="modeldeployments",
    short_names=("mdep",),
    scope="Namespaced",
    description="One model served by a frontend, Prefill instances and Decode instances in one SuperPod.",
    spec=ModelDeploymentSpec,
    status=ModelDeploymentStatus,
    columns=(
        *_READY,
        Column("Roles", ".status.readyRoles", "Ready instances by type."),
        Column("Endpoint", ".status.endpoint", "Base URL of the OpenAI API."),
        Column("Model", ".spec.model.name", "Name clients send as 'model'.", wide=True),
        Column("SuperPod", ".spec.superPodRef.name", "SuperPod it runs in.", wide=True),
        Column(
            "Rollout", _condition("Progressing", "reason"), "Whether a change of revision comes further.", wide=True
        ),
        Column("Revision", ".status.revision", "Number of the revision in force.", type="integer", wide=True),
        Column("Routes-Epoch", ".status.routesEpoch", "Epoch of the frontends' routes.", type="integer", wide=True),
        _AGE,
    ),
    rules=_name_rules(30, "so that the names of its children fit in 63"),
)

TASK_EXECUTOR = Kind(
    kind="TaskExecutor",
    plural="taskexecutors",
    short_names=("te",),
    scope="Namespaced",
    description="Replicas of one Prefill or Decode instance, each a gang of DP groups placed whole or not at all.",
    spec=TaskExecutorSpec,
    status=TaskExecutorStatus,
    columns=(
        Column("Role", ".spec.role", "Prefill or Decode."),
        *_READY,
        Column("Desired", ".spec.replicas", "Instances asked for.", type="integer"),
        Column("Serving", ".status.readyReplicas", "Instances that serve.", type="integer"),
        Column("Chips", ".spec.chips", "Chips it may run on, preferred first.", wide=True),
        Column("DP", ".spec.parallelism.dp", "DP groups of an instance.", type="integer", wide=True),
        Column("TP", ".spec.parallelism.tp", "Dies of a DP group.", type="integer", wide=True),
        Column("EP", ".spec.parallelism.ep", "Ranks the experts are spread over.", type="integer", wide=True),
        Column("Epoch", ".status.instances[0].epoch", "Epoch of instance 0.", type="integer", wide=True),
        Column(
            "Rollout", _condition("Progressing", "reason"), "Whether a change of revision comes further.", wide=True
        ),
        Column("Revision", ".status.updateRevision", "Revision that instances are brought to.", wide=True),
        _AGE,
    ),
    rules=_name_rules(46, "so that the names of its pods fit in 63"),
    scalable=True,
)

DP_GROUP = Kind(
    kind="DPGroup",
    plural="dpgroups",
    short_names=("dpg",),
    scope="Namespaced",
    description="A data-parallel group of an instance: its place, pod and ranks. Written by the operator only.",
    spec=DPGroupSpec,
    status=DPGroupStatus,
    selectable=(".spec.node",),
    columns=(
        Column("Executor", ".spec.executorRef.name", "TaskExecutor it belongs to."),
        *_READY,
        Column("Node", ".spec.node", "Server it was placed on."),
        Column("Die", ".status.ranks[0].die", "First die of the group on that server.", type="integer"),
        Column("Epoch", ".status.epoch", "Epoch the engine has joined.", type="integer"),
        Column("Chip", ".spec.chip", "Chip of its server.", wide=True),
        Column("Dies", ".spec.dies", "Dies it needs.", type="integer", wide=True),
        Column("State", ".status.ranks[0].state", "How far its first rank is.", wide=True),
        Column("KV-%", ".status.kvUsagePercent", "KV cache in use, in %.", type="integer", wide=True),
        Column("Pod", ".status.ranks[0].pod", "Its pod.", wide=True),
        Column("Incarnation", ".status.ranks[0].incarnation", "Life of its engine process.", wide=True),
        _AGE,
    ),
    rules=_name_rules(57, "so that the name of its pod fits in 63"),
)

FAULT_INJECTION = Kind(
    kind="FaultInjection",
    plural="faultinjections",
    short_names=("fi",),
    scope="Namespaced",
    description="Breaks hardware on purpose. The servers carry it out; the operator sees its effects only.",
    spec=FaultInjectionSpec,
    status=FaultInjectionStatus,
    columns=(
        Column("Fault", ".spec.fault.type", "What breaks."),
        Column("Executor", ".spec.target.taskExecutor", "TaskExecutor under which it breaks."),
        Column("Injected", _condition("Injected", "status"), "Whether it was carried out."),
        Column("Recovered", _condition("Recovered", "status"), "Whether all that it hit is Ready again."),
        Column("Reason", _condition("Recovered", "reason"), "Why it is recovered or not."),
        Column("Recovery-ms", ".status.recoveryMilliseconds", "From injection to recovery, in ms.", type="integer"),
        Column("Node", ".status.node", "Server it struck.", wide=True),
        Column("Die", ".status.die", "Die it struck; -1 for the whole server.", type="integer", wide=True),
        _AGE,
    ),
    rules=_name_rules(63, "as any label value"),
)

SCALING_POLICY = Kind(
    kind="ScalingPolicy",
    plural="scalingpolicies",
    short_names=("scp",),
    scope="Namespaced",
    description="Scales the roles of a ModelDeployment for their load and a service level, or says how it would.",
    spec=ScalingPolicySpec,
    status=ScalingPolicyStatus,
    columns=(
        Column("Deployment", ".spec.targetRef.name", "ModelDeployment it scales."),
        Column("Mode", ".spec.mode", "Active or Advisory."),
        *_READY,
        Column("Scale", ".status.summary", "Instances wanted by role."),
        _AGE,
    ),
    rules=_name_rules(63, "as any label value"),
)

EXPERT_PLACEMENT = Kind(
    kind="ExpertPlacement",
    plural="expertplacements",
    short_names=("xep",),
    scope="Namespaced",
    description="Balances the routed experts of a TaskExecutor's instances over their ranks, or says how it would.",
    spec=ExpertPlacementSpec,
    status=ExpertPlacementStatus,
    columns=(
        Column("Executor", ".spec.targetRef.name", "TaskExecutor whose experts are placed."),
        Column("Mode", ".spec.mode", "Static, Dynamic or Advisory."),
        Column("Balanced", _condition("Balanced", "status"), "Whether the load is even enough."),
        Column("Reason", _condition("Balanced", "reason"), "Why it is or not."),
        Column("Version", ".status.instances[0].mapVersion", "Placement in force, of instance 0.", type="integer"),
        Column("Imbalance", ".status.summary", "Busiest rank over the mean, before and after the last change."),
        Column("Swap", ".status.instances[0].swapPhase", "Phase of the change on its way.", wide=True),
        Column("Swapping", _condition("SwapInProgress", "status"), "Whether experts are moving.", wide=True),
        Column("Stalled", _condition("Stalled", "status"), "Whether the last change was given up.", wide=True),
        Column("Missing", ".status.instances[0].missingExperts", "Experts without a copy.", type="integer", wide=True),
        _AGE,
    ),
    rules=_name_rules(46, "so that the names of its ConfigMaps fit in 63"),
)

KINDS = (SUPERPOD, MODEL_DEPLOYMENT, TASK_EXECUTOR, DP_GROUP, FAULT_INJECTION, SCALING_POLICY, EXPERT_PLACEMENT)
