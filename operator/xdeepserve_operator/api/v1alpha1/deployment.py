"""ModelDeployment: one model served by a frontend, Prefill instances and Decode instances in one SuperPod."""

from typing import Annotated

from pydantic import Field, StringConstraints

from xdeepserve_operator.api.v1alpha1.base import (
    ApiModel,
    Chips,
    Conditions,
    LocalReference,
    RoleType,
    Rule,
    ShortName,
    admission,
    chip_rules,
    immutable,
    list_map,
)
from xdeepserve_operator.api.v1alpha1.executor import (
    ModelSource,
    Parallelism,
    Priority,
    RoleResources,
    Warm,
    WeightsFrom,
)
from xdeepserve_operator.api.v1alpha1.experts import Balancing
from xdeepserve_operator.api.v1alpha1.update import Rollout, UpdateStrategy


class Role(ApiModel):
    """One pool of equal instances; becomes the TaskExecutor <deployment>-<role>."""

    model_config = admission(*chip_rules("type"), immutable("type", "add another role and remove this one"))

    name: ShortName = Field(description="Name of the role; part of its children's names.")
    type: RoleType = Field(description="Prefill or Decode; immutable.")
    chips: Chips
    replicas: int = Field(
        default=1, ge=0, le=256, description="Instances at creation; a later change here scales once."
    )
    parallelism: Parallelism = Field(default_factory=Parallelism, description="Spread of an instance over dies.")
    max_batch_per_group: int = Field(default=8, ge=1, le=512, description="Sequences a DP group runs at once.")
    resources: RoleResources = Field(default_factory=RoleResources, description="Requests of an engine pod.")
    warm: Warm = 0
    weights_from: WeightsFrom = "Disk"
    update: UpdateStrategy = Field(default_factory=UpdateStrategy, description="Budgets of a change of revision.")
    expert_placement: Balancing | None = Field(
        default=None,
        description="How its routed experts are balanced; becomes the ExpertPlacement <deployment>-<role>.",
    )


class Frontend(ApiModel):
    """The OpenAI-compatible entrance (the papers' JE)."""

    replicas: int = Field(default=1, ge=1, le=64, description="Frontend pods.")
    api_keys_secret_ref: LocalReference | None = Field(
        default=None,
        description="Secret whose key 'keys' lists API keys separated by commas; without it the API is open.",
    )
    max_body_bytes: int = Field(
        default=1048576, ge=1024, le=67108864, description="Largest request body, in bytes; larger gives 413."
    )


class ServiceLevel(ApiModel):
    """What users were promised."""

    ttft_milliseconds: int = Field(ge=1, le=600000, description="Time to first token, in ms.")
    tpot_milliseconds: int = Field(ge=1, le=60000, description="Time per output token, in ms.")


class ModelDeploymentSpec(ApiModel):
    """What should run."""

    model_config = admission(
        Rule("self.roles.exists(r, r.type == 'Prefill')", "at least one role of type Prefill", ".roles"),
        Rule("self.roles.exists(r, r.type == 'Decode')", "at least one role of type Decode", ".roles"),
        immutable("superPodRef", "create another ModelDeployment"),
    )

    model: ModelSource = Field(description="Checkpoint to serve.")
    superpod_ref: LocalReference = Field(alias="superPodRef", description="SuperPod to run in; immutable.")
    roles: list[Role] = Field(
        min_length=2, max_length=8, description="Pools of instances, keyed by name.", json_schema_extra=list_map("name")
    )
    priority: Priority = 0
    gang_timeout_seconds: int = Field(
        default=120,
        ge=1,
        le=86400,
        description="Time in which all its pods must be on their servers, or it gives every die back, in s.",
    )
    frontend: Frontend = Field(default_factory=Frontend, description="The entrance.")
    slo: ServiceLevel | None = Field(default=None, description="What users were promised.")
    rollout: Rollout = Field(default_factory=Rollout, description="Pace of a change of revision.")


class RoleStatus(ApiModel):
    """Counts of one role."""

    name: ShortName = Field(description="Name of the role.")
    type: RoleType = Field(description="Prefill or Decode.")
    replicas: int = Field(ge=0, description="Instances asked for.")
    ready: int = Field(ge=0, description="Instances that serve.")
    updated: int = Field(ge=0, description="Instances of the current revision.")


class ModelDeploymentStatus(ApiModel):
    """What runs."""

    observed_generation: int = Field(default=0, ge=0, description="Generation this status speaks of.")
    endpoint: Annotated[str, StringConstraints(max_length=512)] = Field(
        default="", description="Base URL of the OpenAI API, reachable where pods are."
    )
    roles: list[RoleStatus] = Field(
        default_factory=list, max_length=8, description="Counts by role.", json_schema_extra=list_map("name")
    )
    ready_roles: Annotated[str, StringConstraints(max_length=128)] = Field(
        default="", description="Ready instances by type, for the printer: 'P 1/1 D 1/1'."
    )
    revision: int = Field(default=0, ge=0, description="Number of the revision in force, to go back to later.")
    routes_epoch: int = Field(default=0, ge=0, description="Epoch of the routes every frontend has; 0 before any.")
    conditions: Conditions = Field(default_factory=list)
