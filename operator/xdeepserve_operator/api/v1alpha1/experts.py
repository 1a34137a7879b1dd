"""ExpertPlacement: where the routed experts of a TaskExecutor's instances are, and when that may change."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from xdeepserve_operator.api.v1alpha1.base import (
    ApiModel,
    Conditions,
    LocalReference,
    Message,
    Name,
    RoleType,
    Rule,
    Timestamp,
    admission,
    atomic_list,
    immutable,
    list_map,
)

PolicyName = Annotated[str, StringConstraints(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9_]*[a-z0-9])?$")]
SwapPhase = Literal["Idle", "Planned", "Prefetch", "Load"]
Outcome = Literal["Applied", "GivenUp", "Advised"]


class PlacementPolicy(ApiModel):
    """How placements are planned."""

    name: PolicyName = Field(
        default="search",
        description="search, incremental, greedy, activated, or one of an installed package; none keeps what there is.",
    )
    budget: Literal["fast", "default"] = Field(default="default", description="How long planning may take.")
    max_moves_per_layer: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="Most experts of a layer that may move at once; search and incremental.",
    )
    base_experts: Literal["Free", "Pinned"] = Field(
        default="Free", description="Pinned: only redundant slots change; Free: all may."
    )
    expert_groups: Literal["AnyServer", "SameServer"] = Field(
        default="AnyServer",
        description="SameServer: experts of a group of the model's gate live on one server, and tokens visit few.",
    )


class PlacementLimits(ApiModel):
    """What a change must be worth, and what it may take."""

    min_imbalance_percent: int = Field(
        default=115,
        ge=100,
        le=10000,
        description="Measured load of the busiest rank, in % of the mean, from which to act.",
    )
    min_gain_percent: int = Field(
        default=3, ge=0, le=99, description="Expected part of the barrier's time that a change must save, in %."
    )
    layers_per_step: int = Field(default=8, ge=1, le=256, description="Layers that change together.")
    progress_deadline_seconds: int = Field(
        default=60, ge=1, le=3600, description="A step without progress for so long is rolled back, in s."
    )


_BALANCING_RULES = (
    Rule("(self.mode == 'Static') == has(self.mapRef)", "needed for mode Static, and only there", ".mapRef"),
    Rule(
        "!has(self.policy) || !has(self.policy.maxMovesPerLayer) || self.policy.name in ['search', 'incremental']",
        "only policies search and incremental limit their moves",
        ".policy.maxMovesPerLayer",
    ),
)


class Balancing(ApiModel):
    """How experts are placed; what a ModelDeployment says of a role's, too."""

    model_config = admission(*_BALANCING_RULES)

    mode: Literal["Static", "Dynamic", "Advisory"] = Field(
        default="Dynamic",
        description="Dynamic follows the load; Advisory only says what it would do; Static keeps the map of mapRef.",
    )
    map_ref: LocalReference | None = Field(
        default=None, description="ConfigMap with the map to keep, in mode Static; key map.json."
    )
    policy: PlacementPolicy = Field(default_factory=PlacementPolicy, description="How to plan.")
    redundant_slots: int = Field(
        default=1, ge=0, le=64, description="Slots of a rank and layer beyond those that all experts need once."
    )
    interval_seconds: int = Field(default=60, ge=1, le=3600, description="Time between two looks at the load, in s.")
    window: int = Field(default=16, ge=1, le=32, description="Intervals that a plan is made from, at most.")
    limits: PlacementLimits = Field(default_factory=PlacementLimits, description="When to act.")


class RankSpeed(ApiModel):
    """A rank that is not as fast as the others."""

    rank: int = Field(ge=0, le=1023, description="Number of the rank in each instance.")
    percent: int = Field(ge=1, le=1000, description="Its speed in % of the others'.")


class ExpertPlacementSpec(Balancing):
    """What to balance and how."""

    model_config = admission(
        immutable("targetRef", "create another ExpertPlacement"),
        *_BALANCING_RULES,
        Rule("self.evacuate.all(r, self.evacuate.exists_one(s, s == r))", "each rank at most once", ".evacuate"),
    )

    target_ref: LocalReference = Field(description="TaskExecutor whose experts are placed; immutable.")
    phase: RoleType = Field(default="Decode", description="Role of the TaskExecutor; another one is not touched.")
    evacuate: list[Annotated[int, Field(ge=0, le=1023)]] = Field(
        default_factory=list,
        max_length=64,
        description="Ranks that shall hold no expert.",
        json_schema_extra=atomic_list(),
    )
    rank_speeds: list[RankSpeed] = Field(
        default_factory=list,
        max_length=64,
        description="Ranks that are slower or faster than the others, and get load for it.",
        json_schema_extra=list_map("rank"),
    )
    paused: bool = Field(default=False, description="Begin no change, and call off one that is on its way.")


class Imbalance(ApiModel):
    """Load of the busiest rank in % of the mean, averaged over layers; 100 is even, 0 unknown."""

    before: int = Field(default=0, ge=0, description="Measured before the last change.")
    predicted: int = Field(default=0, ge=0, description="Expected of the last plan.")
    after: int = Field(default=0, ge=0, description="Measured last, with the placement in force.")
    worst_layer: int = Field(default=0, ge=0, description="Measured last in the worst layer.")


class InstancePlacement(ApiModel):
    """One instance."""

    index: int = Field(ge=0, le=1023, description="Number of the replica.")
    epoch: int = Field(default=0, ge=0, description="Epoch of its group.")
    map_version: int = Field(default=0, ge=0, description="Version of the placement in force; 0 is the plain one.")
    map_ref: Name | None = Field(default=None, description="ConfigMap of the placement that it has, or goes to.")
    map_shards: int = Field(default=0, ge=0, le=64, description="ConfigMaps that the map is spread over.")
    imbalance: Imbalance = Field(default_factory=Imbalance, description="How even the load is.")
    swap_phase: SwapPhase = Field(default="Idle", description="How far the change on its way is.")
    layers_done: int = Field(default=0, ge=0, description="Layers of the last plan that are in force.")
    layers_total: int = Field(default=0, ge=0, description="Layers of the last plan.")
    missing_experts: int = Field(default=0, ge=0, description="Experts, over all layers, without any copy.")
    swaps: int = Field(default=0, ge=0, description="Changes taken up by its ranks' processes.")
    moved_mebibytes: int = Field(default=0, ge=0, description="Weights its ranks' processes have fetched, in MiB.")
    evacuated: list[Annotated[int, Field(ge=0, le=1023)]] = Field(
        default_factory=list,
        max_length=512,
        description="Ranks that recovery wants to hold no expert.",
        json_schema_extra=atomic_list(),
    )
    stalled: bool = Field(default=False, description="Whether the last change was given up, and rolled back.")
    message: Message = Field(default="", description="What it waits for, or what went wrong.")


class PlacementEvent(ApiModel):
    """A change, or in mode Advisory what it would have been."""

    time: Timestamp = Field(description="When, RFC 3339.")
    index: int = Field(ge=0, description="Number of the replica.")
    version: int = Field(ge=0, description="Version in force afterwards.")
    outcome: Outcome = Field(description="What became of it.")
    layers: int = Field(ge=0, description="Layers that were to change.")
    moves: int = Field(default=0, ge=0, description="Experts that were to move.")
    mebibytes: int = Field(default=0, ge=0, description="Weights that were to move, in MiB.")
    before: int = Field(default=0, ge=0, description="Imbalance measured before, in %.")
    predicted: int = Field(default=0, ge=0, description="Imbalance that was expected, in %.")
    after: int = Field(default=0, ge=0, description="Imbalance measured after, in %; 0 while unknown.")


class ExpertPlacementStatus(ApiModel):
    """What is known."""

    observed_generation: int = Field(default=0, ge=0, description="Generation this status speaks of.")
    apply_request: Annotated[str, StringConstraints(max_length=64)] = Field(
        default="", description="Last request to apply a plan at once that was followed."
    )
    instances: list[InstancePlacement] = Field(
        default_factory=list, max_length=256, description="Instances by number.", json_schema_extra=list_map("index")
    )
    summary: Annotated[str, StringConstraints(max_length=64)] = Field(
        default="", description="Imbalance of instance 0 before and after the last change, for the printer."
    )
    history: list[PlacementEvent] = Field(
        default_factory=list,
        max_length=10,
        description="Last changes, the newest first.",
        json_schema_extra=list_map("time", "index"),
    )
    conditions: Conditions = Field(default_factory=list)
