"""DPGroup: a data-parallel group of an instance: place, pod, ranks. Written by the operator only."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from xdeepserve_operator.api.v1alpha1.base import (
    ApiModel,
    Chip,
    Conditions,
    LocalReference,
    Message,
    NodeName,
    RoleType,
    Rule,
    admission,
    immutable,
    list_map,
)
from xdeepserve_operator.api.v1alpha1.executor import Revision
from xdeepserve_operator.api.v1alpha1.update import Leaving

RankState = Literal["Pending", "Starting", "Joined", "Silent", "Failed"]


class DPGroupSpec(ApiModel):
    """Where the group runs. A new attempt is a new pod, after a fault or a change of revision."""

    model_config = admission(
        Rule("self.role != 'Decode' || self.chip == '910C'", "Decode runs on 910C only", ".chip"),
        Rule("self.dies <= 8 || self.chip == '910C'", "at most 8 on a 910B server", ".dies"),
        *(immutable(field, "the group's name tells them") for field in ("executorRef", "role", "replica", "index")),
    )

    executor_ref: LocalReference = Field(description="TaskExecutor it belongs to.")
    role: RoleType = Field(description="Role of that TaskExecutor.")
    module: Literal["Full", "Attention", "Expert"] = Field(default="Full", description="Part of the model it runs.")
    replica: int = Field(ge=0, le=287, description="Instance it belongs to.")
    index: int = Field(ge=0, le=1023, description="Its number in the instance: the DP rank.")
    dies: int = Field(ge=1, le=16, description="Dies it needs, all on one server.")
    chip: Chip = Field(description="Chip of its server.")
    node: NodeName = Field(description="Server it was placed on.")
    attempt: int = Field(
        default=0, ge=0, le=99999, description="Counts pods made for the group; part of the pod's name."
    )
    revision: Revision = Field(description="Revision of its pod.")
    leaving: Leaving | None = Field(
        default=None, description="Set while its instance finishes the requests it has before it is taken down."
    )


class RankStatus(ApiModel):
    """One rank: a die of the group."""

    rank: int = Field(ge=0, description="Number of the rank in the instance.")
    pod: Annotated[str, StringConstraints(max_length=253)] = Field(description="Its pod.")
    node: NodeName = Field(description="Its server.")
    die: int = Field(default=-1, ge=-1, description="Its die on that server; -1 before the device plugin says.")
    incarnation: Annotated[str, StringConstraints(max_length=64)] = Field(
        default="", description="Changes whenever the engine's process starts anew."
    )
    state: RankState = Field(description="How far the rank is.")


class DPGroupStatus(ApiModel):
    """State of the group."""

    observed_generation: int = Field(default=0, ge=0, description="Generation this status speaks of.")
    ranks: list[RankStatus] = Field(
        default_factory=list, max_length=16, description="Ranks by number.", json_schema_extra=list_map("rank")
    )
    epoch: int = Field(default=0, ge=0, description="Epoch the engine has joined; 0 before the first.")
    admission: Literal["Open", "Closed"] = Field(default="Closed", description="Whether it takes requests.")
    kv_usage_percent: int = Field(default=0, ge=0, le=100, description="Blocks of its KV cache in use, in %.")
    error: Message = Field(default="", description="The engine's own reason when it cannot run.")
    conditions: Conditions = Field(default_factory=list)
