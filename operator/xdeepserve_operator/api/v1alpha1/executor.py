"""TaskExecutor: replicas of one Prefill or Decode instance, each a gang of DP groups placed whole or not at all.

``/scale`` is the only owner of ``spec.replicas`` after creation. The role is immutable. Decode runs on 910C.
"""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from xdeepserve_operator.api.v1alpha1.base import (
    ApiModel,
    Chips,
    Conditions,
    LocalReference,
    Name,
    RoleType,
    Rule,
    Timestamp,
    admission,
    chip_rules,
    immutable,
    list_map,
)
from xdeepserve_operator.api.v1alpha1.update import Pace, UpdateStrategy

Priority = Annotated[
    int,
    Field(
        ge=-1_000_000_000,
        le=1_000_000_000,
        description="The higher is placed first, and may take dies from instances of a lower one.",
    ),
]
Revision = Annotated[str, StringConstraints(max_length=63)]


class Parallelism(ApiModel):
    """How an instance spreads over dies: dp groups of tp dies; experts over ep ranks."""

    model_config = admission(
        Rule("self.dp * self.tp % self.ep == 0", "must divide dp x tp, the dies of an instance", ".ep")
    )

    dp: int = Field(default=1, ge=1, le=1024, description="DP groups of an instance.")
    tp: int = Field(default=1, ge=1, le=16, description="Dies of a DP group; they lie on one server.")
    ep: int = Field(default=1, ge=1, le=1024, description="Ranks the experts are spread over; divides dp x tp.")


class Speculation(ApiModel):
    """Drafts that are verified together with the next token."""

    method: Literal["MTP"] = Field(default="MTP", description="MTP: the checkpoint's own layer drafts.")
    tokens: int = Field(default=1, ge=1, le=8, description="Drafts of a sequence in one iteration.")


class ModelSource(ApiModel):
    """Which checkpoint to serve, and how."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=128)] = Field(
        description="Name clients send as 'model'."
    )
    uri: Annotated[str, StringConstraints(max_length=1024, pattern=r"^file:///.+")] = Field(
        description="Where the checkpoint lies on the servers; file:///models/ is the servers' model store."
    )
    max_context_tokens: int = Field(
        default=4096, ge=16, le=1048576, description="Longest prompt plus answer, in tokens."
    )
    kv_cache_dtype: Literal["Float32", "INT8"] = Field(
        default="Float32",
        description="How KV is kept; INT8 takes a third of the memory and rounds all but rotary keys.",
    )
    speculative: Speculation | None = Field(
        default=None, description="Speculative decoding; without it, one token an iteration. Answers are the same."
    )


class RoleResources(ApiModel):
    """What an engine container asks for besides dies."""

    cpu: Annotated[str, StringConstraints(max_length=16, pattern=r"^([0-9]+(\.[0-9]{1,3})?|[0-9]+m)$")] = Field(
        default="250m", description="CPU request of an engine container, in cores ('0.5', '2') or millicores ('250m')."
    )
    memory: Annotated[str, StringConstraints(max_length=16, pattern=r"^[0-9]+(Mi|Gi)$")] = Field(
        default="256Mi", description="Memory request and limit of an engine container, in MiB or GiB ('256Mi')."
    )


class EngineTuning(ApiModel):
    """Limits of one DP group."""

    max_batch_per_group: int = Field(default=8, ge=1, le=512, description="Sequences a DP group decodes at once.")
    kv_block_tokens: int = Field(default=32, ge=1, le=1024, description="Size of a KV cache block, in tokens.")
    kv_blocks: int = Field(default=512, ge=1, le=1048576, description="KV cache of a DP group, in blocks.")
    prefill_chunk_tokens: int = Field(
        default=256, ge=16, le=16384, description="Most prompt that a prefill iteration computes, in tokens."
    )


class Gang(ApiModel):
    """TaskExecutors that are first placed together, or not at all."""

    name: Name = Field(description="Name of the gang; by default the owning ModelDeployment.")
    members: int = Field(ge=1, le=8, description="TaskExecutors that must exist before any is placed.")
    timeout_seconds: int = Field(
        default=120,
        ge=1,
        le=86400,
        description="Time in which all its pods must be on their servers, or it gives every die back, in s.",
    )


Warm = Annotated[
    int,
    Field(
        ge=0,
        le=64,
        description="Engines that run and wait to become DP groups; each holds a group's dies until others need them.",
    ),
]


WeightsFrom = Annotated[
    Literal["Disk", "Peer"],
    Field(description="Peer copies weights from an engine that serves, over XCCL; the first ones read the Disk."),
]


class TaskExecutorSpec(ApiModel):
    """What an instance is and how many there are."""

    model_config = admission(
        *chip_rules("role"),
        immutable("role", "create another TaskExecutor"),
        immutable("superPodRef", "create another TaskExecutor"),
    )

    role: RoleType = Field(description="Prefill or Decode; immutable.")
    chips: Chips
    superpod_ref: LocalReference = Field(alias="superPodRef", description="SuperPod to run in; immutable.")
    replicas: int = Field(default=1, ge=0, le=256, description="Instances; owned by /scale after creation.")
    parallelism: Parallelism = Field(default_factory=Parallelism, description="Spread of an instance over dies.")
    model: ModelSource = Field(description="Checkpoint to serve.")
    tuning: EngineTuning = Field(default_factory=EngineTuning, description="Limits of a DP group.")
    resources: RoleResources = Field(default_factory=RoleResources, description="Requests of an engine pod.")
    warm: Warm = 0
    weights_from: WeightsFrom = "Disk"
    priority: Priority = 0
    gang: Gang | None = Field(default=None, description="TaskExecutors placed together the first time.")
    update: UpdateStrategy = Field(default_factory=UpdateStrategy, description="Budgets of a change of revision.")
    rollout: Pace = Field(default_factory=Pace, description="Pace of a change of revision.")
    control_token_secret_ref: LocalReference | None = Field(
        default=None, description="Secret whose key 'token' opens the control routes; made when absent."
    )


class ReplicaStatus(ApiModel):
    """One instance."""

    index: int = Field(ge=0, description="Number of the instance.")
    ready: bool = Field(description="Whether every rank has joined the current epoch and the shell answers.")
    epoch: int = Field(ge=0, description="Epoch of its membership; 0 before the first.")
    revision: Revision = Field(description="Revision it runs.")
    leaving: bool = Field(default=False, description="Whether it gets no new requests and only finishes those it has.")


class TaskExecutorStatus(ApiModel):
    """State of the instances."""

    observed_generation: int = Field(default=0, ge=0, description="Generation this status speaks of.")
    replicas: int = Field(default=0, ge=0, description="Instances that hold dies.")
    ready_replicas: int = Field(default=0, ge=0, description="Instances that serve and stay.")
    updated_replicas: int = Field(default=0, ge=0, description="Instances of the update revision.")
    updated_ready_replicas: int = Field(default=0, ge=0, description="Those of them that serve.")
    selector: Annotated[str, StringConstraints(max_length=512)] = Field(
        default="", description="Selects the TE-shell pods, one an instance, for /scale."
    )
    current_revision: Revision = Field(default="", description="Revision that every instance had last.")
    update_revision: Revision = Field(default="", description="Revision that instances are brought to.")
    warm: int = Field(default=0, ge=0, description="Engines that wait to become DP groups.")
    progress_time: Timestamp | None = Field(default=None, description="When the rollout last came further, RFC 3339.")
    instances: list[ReplicaStatus] = Field(
        default_factory=list, max_length=288, description="Instances by number.", json_schema_extra=list_map("index")
    )
    conditions: Conditions = Field(default_factory=list)
