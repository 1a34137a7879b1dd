"""FaultInjection: breaks hardware on purpose. The servers carry it out; the operator sees effects."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from xdeepserve_operator.api.v1alpha1.base import (
    ApiModel,
    Conditions,
    Name,
    NodeName,
    Rule,
    Timestamp,
    admission,
    atomic_list,
)


class RandomChoice(ApiModel):
    """Picks one of the matching dies by a seed, so that a run can be repeated."""

    seed: int = Field(default=0, ge=0, le=2147483647, description="Seed of the choice.")


class FaultTarget(ApiModel):
    """Which hardware breaks: a named server and die, or one under a TaskExecutor's pods."""

    model_config = admission(
        Rule("has(self.node) || has(self.taskExecutor)", "names a node, or a taskExecutor whose dies may break"),
        Rule("!has(self.die) || has(self.node)", "needs node: a die is numbered within its server", ".die"),
    )

    superpod: Name | None = Field(default=None, alias="superPod", description="SuperPod the target lies in.")
    task_executor: Name | None = Field(
        default=None, description="Breaks hardware under an engine pod of this TaskExecutor."
    )
    node: NodeName | None = Field(default=None, description="Server that breaks.")
    die: int | None = Field(default=None, ge=0, le=15, description="Number of the die on that server.")
    random: RandomChoice = Field(default_factory=RandomChoice, description="How one of several is picked.")


class Fault(ApiModel):
    """What happens."""

    type: Literal["DieKill", "DieHang", "NodeLoss"] = Field(
        description="DieKill: the die fails, its processes die, the server reports it unhealthy. "
        "DieHang: processes on the die stop answering while the server reports it healthy. "
        "NodeLoss: the server falls silent with everything on it."
    )


class FaultInjectionSpec(ApiModel):
    """A fault, its target and how long it lasts."""

    model_config = admission(
        Rule("self == oldSelf", "immutable; create another FaultInjection", reason="FieldValueForbidden"),
        Rule(
            "self.fault.type != 'NodeLoss' || !has(self.target.die)",
            "NodeLoss strikes a whole server; leave die out",
            ".target.die",
        ),
    )

    target: FaultTarget = Field(description="Which hardware breaks.")
    fault: Fault = Field(description="What happens to it.")
    duration_seconds: int | None = Field(
        default=None,
        ge=1,
        le=86400,
        description="Mended after this long, in s; without it, when deleted.",
    )


class FaultInjectionStatus(ApiModel):
    """What was done, and what the operator made of it."""

    node: Annotated[str, StringConstraints(max_length=253)] = Field(
        default="", description="Server the fault struck; written by the servers."
    )
    die: int = Field(default=-1, ge=-1, description="Die it struck; -1 for the whole server.")
    pods: list[Annotated[str, StringConstraints(max_length=253)]] = Field(
        default_factory=list,
        max_length=64,
        description="Pods that ran there, as namespace/name.",
        json_schema_extra=atomic_list(),
    )
    injected_at: Timestamp | None = Field(default=None, description="When it was carried out.")
    observed_at: Timestamp | None = Field(default=None, description="When the operator first saw an effect.")
    recovered_at: Timestamp | None = Field(
        default=None, description="When every affected TaskExecutor was Ready again."
    )
    mended_at: Timestamp | None = Field(default=None, description="When the hardware was whole again.")
    recovery_milliseconds: int = Field(default=0, ge=0, description="From injection to recovery, in ms.")
    conditions: Conditions = Field(default_factory=list)
