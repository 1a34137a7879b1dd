"""How instances are replaced by those of a new revision: budgets of a role, and the pace of a whole deployment."""

from typing import Literal

from pydantic import Field

from xdeepserve_operator.api.v1alpha1.base import ApiModel, Rule, Timestamp, admission

LeaveReason = Literal["ScaledDown", "Outdated", "Surplus", "Preempted"]


class UpdateStrategy(ApiModel):
    """Budgets of one role. An instance that leaves finishes its requests first."""

    model_config = admission(
        Rule(
            "self.maxUnavailable + self.maxSurge >= 1", "at least 1 with maxSurge, or nothing moves", ".maxUnavailable"
        )
    )

    max_unavailable: int = Field(
        default=1, ge=0, le=256, description="Instances that may be missing while a new revision rolls out."
    )
    max_surge: int = Field(
        default=0,
        ge=0,
        le=32,
        description="Instances of a new revision that may run beside the old ones, on free dies.",
    )
    partition: int = Field(
        default=0, ge=0, le=256, description="Instances of a lower number keep the old revision, also when made anew."
    )
    drain_seconds: int = Field(
        default=30, ge=0, le=3600, description="Longest wait for the requests of an instance that leaves, in s."
    )


class Pace(ApiModel):
    """Whether a change of revision goes on, and for how long it may stand still."""

    paused: bool = Field(default=False, description="Whether instances keep the revision they have.")
    progress_deadline_seconds: int = Field(
        default=600, ge=1, le=86400, description="Time without progress after which Progressing turns False, in s."
    )


class Rollout(Pace):
    """How a deployment changes its revision, and goes back."""

    history_limit: int = Field(default=10, ge=1, le=32, description="Revisions that are kept to go back to.")


class Leaving(ApiModel):
    """Why and since when an instance is on its way out."""

    reason: LeaveReason = Field(description="ScaledDown, Outdated, Surplus or Preempted.")
    since: Timestamp = Field(description="When it left the routes, RFC 3339.")
