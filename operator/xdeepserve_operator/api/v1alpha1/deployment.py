"""ModelDeployment: one model served by a frontend, Prefill instances and Decode instances in one SuperPod."""

from typing import Annotated

from pydantic import Field, StringConstraints

from xdeepserve_operator.api.v1alpha1.base import (
    ApiModel,
    Chip,
    Conditions,
    LocalReference,
    RoleType,
    ShortName,
    rules,
)
from xdeepserve_operator.api.v1alpha1.executor import ModelSource, Parallelism, RoleResources


class Role(ApiModel):
    """One pool of equal instances; becomes the TaskExecutor <deployment>-<role>."""

    model_config = ApiModel.model_config | {
        "json_schema_extra": rules(
            ("self.type != 'Decode' || self.chips.all(c, c == '910C')", "chips: Decode runs on 910C only"),
            ("self.type == oldSelf.type", "type: immutable; add another role and remove this one"),
        )
    }

    name: ShortName = Field(description="Name of the role; part of its children's names.")
    type: RoleType = Field(description="Prefill or Decode; immutable.")
    chips: list[Chip] = Field(
        min_length=1,
        max_length=2,
        description="Chips it may run on, preferred first.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    replicas: int = Field(
        default=1, ge=0, le=256, description="Instances at creation; a later change here scales once."
    )
    parallelism: Parallelism = Field(default_factory=Parallelism, description="Spread of an instance.")
    max_batch_per_group: int = Field(default=8, ge=1, le=512, description="Sequences a DP group runs at once.")
    resources: RoleResources = Field(default_factory=RoleResources, description="Requests of an engine pod.")


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

    model_config = ApiModel.model_config | {
        "json_schema_extra": rules(
            ("self.roles.exists(r, r.type == 'Prefill')", "roles: at least one of type Prefill"),
            ("self.roles.exists(r, r.type == 'Decode')", "roles: at least one of type Decode"),
            ("self.superPodRef.name == oldSelf.superPodRef.name", "superPodRef: immutable"),
        )
    }

    model: ModelSource = Field(description="Checkpoint to serve.")
    superpod_ref: LocalReference = Field(alias="superPodRef", description="SuperPod to run in.")
    roles: list[Role] = Field(
        min_length=2,
        max_length=8,
        description="Pools of instances, keyed by name.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    frontend: Frontend = Field(default_factory=Frontend, description="The entrance.")
    slo: ServiceLevel | None = Field(default=None, description="What users were promised.")


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
        default_factory=list,
        max_length=8,
        description="Counts by role.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    ready_roles: Annotated[str, StringConstraints(max_length=128)] = Field(
        default="", description="Ready instances by type, for the printer: 'P 1/1 D 1/1'."
    )
    routes_epoch: int = Field(default=0, ge=0, description="Epoch of the routes every frontend has.")
    conditions: Conditions = Field(default_factory=list)
