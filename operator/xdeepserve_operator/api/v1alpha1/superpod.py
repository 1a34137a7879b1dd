"""SuperPod: the servers of one UB domain and the 910B servers beside it, as the admin declares them.

The 910C servers of a SuperPod are joined by UB; 910B servers are reached by RoCE or VPC. Nodes are matched by
label; their chip label, resource count and SuperPod id are compared, since a label can lie.
"""

from typing import Literal

from pydantic import Field

from xdeepserve_operator.api.v1alpha1.base import (
    ApiModel,
    Chip,
    Conditions,
    LabelValue,
    Message,
    NodeName,
    Rule,
    ShortName,
    admission,
    atomic_list,
    list_map,
)

Plane = Literal["UB", "RoCE", "VPC"]


class Pool(ApiModel):
    """Servers of one chip."""

    model_config = admission(
        Rule("self.chip == '910C' || !('UB' in self.planes)", "UB joins 910C servers only", ".planes"),
        Rule("self.planes.all(p, self.planes.exists_one(q, q == p))", "each plane at most once", ".planes"),
        Rule("self.chip == '910C' || self.diesPerNode <= 8", "at most 8 on a 910B server", ".diesPerNode"),
        Rule(
            "self.nodeSelector.all(key, size(key) <= 317)",
            "label keys have at most 317 characters",
            ".nodeSelector",
        ),
    )

    name: ShortName = Field(description="Name of the pool.")
    chip: Chip = Field(description="Chip of every server in the pool.")
    node_selector: dict[str, LabelValue] = Field(
        default_factory=dict,
        max_length=16,
        description="Labels a node must carry, besides the chip's own and the SuperPod's id.",
    )
    dies_per_node: int = Field(ge=1, le=16, description="Dies of a server: what huawei.com/Ascend910 must show.")
    planes: list[Plane] = Field(
        min_length=1,
        max_length=3,
        description="Networks that reach the pool, preferred first.",
        json_schema_extra=atomic_list(),
    )


class SuperPodSpec(ApiModel):
    """Which nodes form the SuperPod."""

    superpod_id: LabelValue = Field(
        min_length=1, description="Value of the label huawei.com/topotree.superpodid on its nodes."
    )
    pools: list[Pool] = Field(
        min_length=1,
        max_length=8,
        description="Groups of servers, one chip each.",
        json_schema_extra=list_map("name"),
    )


class DieCounts(ApiModel):
    """Dies of one chip."""

    chip: Chip = Field(description="The chip.")
    capacity: int = Field(ge=0, description="Dies on matched servers.")
    allocated: int = Field(ge=0, description="Dies held by pods, whoever owns them.")
    faulted: int = Field(ge=0, description="Dies their server reports unhealthy.")
    largest_free_block: int = Field(ge=0, description="Most free healthy dies on one server.")


class ServerStatus(ApiModel):
    """One matched server."""

    name: NodeName = Field(description="Node name.")
    pool: ShortName = Field(description="Pool it belongs to.")
    ready: bool = Field(description="Whether its node is Ready and schedulable.")
    free: int = Field(ge=0, description="Free healthy dies.")
    faulted: list[int] = Field(
        default_factory=list,
        max_length=16,
        description="Numbers of unhealthy dies.",
        json_schema_extra=atomic_list(),
    )
    mismatch: Message | None = Field(default=None, description="Why the server is not used although its labels match.")


class SuperPodStatus(ApiModel):
    """What the servers show now."""

    observed_generation: int = Field(default=0, ge=0, description="Generation this status speaks of.")
    dies: list[DieCounts] = Field(
        default_factory=list,
        max_length=2,
        description="Dies by chip.",
        json_schema_extra=list_map("chip"),
    )
    nodes: list[ServerStatus] = Field(
        default_factory=list,
        max_length=512,
        description="Matched servers.",
        json_schema_extra=list_map("name"),
    )
    conditions: Conditions = Field(default_factory=list)
