"""ScalingPolicy: how many instances of each role a ModelDeployment shall have, within bounds, for a service level."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from xdeepserve_operator.api.v1alpha1.base import (
    ApiModel,
    Conditions,
    LocalReference,
    Message,
    Rule,
    ShortName,
    Timestamp,
    admission,
    immutable,
    list_map,
)

ScalingReason = Literal[
    "Steady",
    "Load",
    "Latency",
    "Cache",
    "Ratio",
    "Idle",
    "Demand",
    "AtMaximum",
    "Stabilising",
    "Frozen",
    "ScaledByUser",
    "NoData",
]


class RoleBounds(ApiModel):
    """Least and most instances of one role."""

    model_config = admission(
        Rule("self.minReplicas <= self.maxReplicas", "at most maxReplicas", ".minReplicas"),
    )

    name: ShortName = Field(description="Name of a role of the ModelDeployment.")
    min_replicas: int = Field(
        default=1, ge=0, le=256, description="Least instances; 0 allows none while the role is not used."
    )
    max_replicas: int = Field(ge=1, le=256, description="Most instances.")


class ScalingObjective(ApiModel):
    """What users were promised, and how full instances may be."""

    ttft_milliseconds: int | None = Field(
        default=None, ge=1, le=600000, description="Time to first token, in ms; by default the ModelDeployment's."
    )
    tpot_milliseconds: int | None = Field(
        default=None, ge=1, le=60000, description="Time per output token, in ms; by default the ModelDeployment's."
    )
    percentile: int = Field(default=95, ge=50, le=99, description="Share of requests that must be so fast, in percent.")
    load_percent: int = Field(
        default=80, ge=10, le=100, description="Sequences of an instance to aim at, in % of its batch."
    )
    cache_percent: int = Field(default=85, ge=10, le=100, description="KV cache use to aim at, in %.")


class PrefillRatio(ApiModel):
    """Bounds of the number of prefill instances for a hundred decode instances."""

    model_config = admission(
        Rule("self.minPercent <= self.maxPercent", "at most maxPercent", ".minPercent"),
    )

    min_percent: int = Field(
        default=1, ge=1, le=10000, description="Least prefill instances, in % of decode instances."
    )
    max_percent: int = Field(
        default=10000, ge=1, le=10000, description="Most prefill instances, in % of decode instances."
    )


class ScalingStep(ApiModel):
    """How fast one direction may go."""

    window_seconds: int = Field(
        ge=0, le=3600, description="The wish must have held for so long; its most careful value counts, in s."
    )
    max_step: int = Field(ge=1, le=256, description="Most instances of a role at once.")
    period_seconds: int = Field(ge=0, le=3600, description="Time between two steps of a role, in s.")


class ScalingBehavior(ApiModel):
    """Pace of either direction."""

    up: ScalingStep = Field(
        default_factory=lambda: ScalingStep(window_seconds=0, max_step=4, period_seconds=15),
        description="More instances.",
    )
    down: ScalingStep = Field(
        default_factory=lambda: ScalingStep(window_seconds=300, max_step=1, period_seconds=60),
        description="Fewer instances.",
    )
    idle_seconds: int = Field(
        default=600, ge=1, le=86400, description="Time without use after which a role whose least is 0 has none, in s."
    )


class ScalingPolicySpec(ApiModel):
    """What to aim at."""

    model_config = admission(immutable("targetRef", "create another ScalingPolicy"))

    target_ref: LocalReference = Field(description="ModelDeployment to scale; immutable.")
    mode: Literal["Active", "Advisory"] = Field(
        default="Active", description="Active scales; Advisory only says in status what it would do."
    )
    roles: list[RoleBounds] = Field(
        min_length=1, max_length=8, description="Roles to scale, keyed by name.", json_schema_extra=list_map("name")
    )
    objective: ScalingObjective = Field(default_factory=ScalingObjective, description="What to keep.")
    prefill_ratio: PrefillRatio = Field(default_factory=PrefillRatio, description="Bounds between the roles.")
    behavior: ScalingBehavior = Field(default_factory=ScalingBehavior, description="How fast to follow.")


class RoleScaling(ApiModel):
    """One role."""

    name: ShortName = Field(description="Name of the role.")
    replicas: int = Field(ge=0, description="Instances asked for now.")
    desired: int = Field(ge=0, description="Instances it should have.")
    score_percent: int = Field(ge=0, description="Need in relation to what serves, in %; rounded to tens.")
    reason: ScalingReason = Field(description="What decided.")
    message: Message = Field(default="", description="Why, for people.")
    scaled_from: int = Field(ge=0, description="Instances before the last change by this policy.")
    scaled_to: int = Field(ge=0, description="Instances it was changed to; other numbers are somebody else's wish.")


class ScalingEvent(ApiModel):
    """A change that was made, or in mode Advisory would have been."""

    time: Timestamp = Field(description="When, RFC 3339.")
    role: ShortName = Field(description="Name of the role.")
    before: int = Field(ge=0, description="Instances before.")
    after: int = Field(ge=0, description="Instances after.")
    reason: ScalingReason = Field(description="What decided.")


class ScalingPolicyStatus(ApiModel):
    """What was decided last."""

    observed_generation: int = Field(default=0, ge=0, description="Generation this status speaks of.")
    roles: list[RoleScaling] = Field(
        default_factory=list, max_length=8, description="Roles by name.", json_schema_extra=list_map("name")
    )
    summary: Annotated[str, StringConstraints(max_length=256)] = Field(
        default="", description="Instances wanted by role, for the printer: 'prefill 1->2'."
    )
    history: list[ScalingEvent] = Field(
        default_factory=list,
        max_length=10,
        description="Last changes, the newest first.",
        json_schema_extra=list_map("time", "role"),
    )
    conditions: Conditions = Field(default_factory=list)
