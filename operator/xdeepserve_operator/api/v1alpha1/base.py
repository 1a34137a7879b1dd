"""What all kinds share: camel-case aliases, bounds, conditions, admission rules.

``ApiModel`` refuses unknown fields, as the API server prunes them. ``rules`` attaches CEL rules, which the
CRD generator copies to ``x-kubernetes-validations``; the same rules are checked again by placement where a
label could lie. Every string, list and map carries a bound, or CEL's cost estimate refuses the CRD.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

Name = Annotated[str, StringConstraints(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
ShortName = Annotated[str, StringConstraints(max_length=15, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
Chip = Literal["910B", "910C"]
RoleType = Literal["Prefill", "Decode"]
Message = Annotated[str, StringConstraints(max_length=1024)]
Timestamp = Annotated[str, StringConstraints(max_length=32), Field(json_schema_extra={"format": "date-time"})]


def rules(*pairs: tuple[str, str]) -> dict[str, Any]:
    """CEL rules as (expression, message) pairs, for ``json_schema_extra``."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in pairs]}


class ApiModel(BaseModel):
    """Base of every type of the API: camelCase on the wire, snake_case in Python, unknown fields refused."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")

    def to_wire(self) -> dict[str, Any]:
        """The JSON form that the API server stores: aliases, no nulls."""
        return self.model_dump(by_alias=True, exclude_none=True, mode="json")


class LocalReference(ApiModel):
    """A reference to an object by name (same namespace, or cluster-wide for a SuperPod)."""

    name: Name = Field(description="Name of the object.")


class Condition(ApiModel):
    """A condition as in the Kubernetes API conventions; polarity is positive."""

    type: Annotated[str, StringConstraints(max_length=64)] = Field(description="Kind of condition, e.g. Ready.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether the condition holds.")
    reason: Annotated[str, StringConstraints(max_length=64)] = Field(description="One word in CamelCase that says why.")
    message: Message = Field(default="", description="Why, for people; says what to do when something is wrong.")
    last_transition_time: Timestamp = Field(description="When status last changed, RFC 3339.")
    observed_generation: int = Field(default=0, ge=0, description="Generation of the spec this was judged on.")


Conditions = Annotated[
    list[Condition],
    Field(
        max_length=16,
        description="Current state in words; Ready sums it up.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    ),
]
