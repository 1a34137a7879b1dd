"""What all kinds share: camel-case aliases, bounds, conditions, admission rules.

``ApiModel`` refuses unknown fields, as the API server prunes them. ``admission`` attaches CEL rules to a type; the
CRD generator copies them to ``x-kubernetes-validations``, and placement checks again what a label could belie.
Every string, list and map carries a bound, or the API server's estimate of a rule's cost refuses the CRD.
"""

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict

Name = Annotated[str, StringConstraints(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
ShortName = Annotated[str, StringConstraints(max_length=15, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
NodeName = Annotated[str, StringConstraints(max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
LabelValue = Annotated[str, StringConstraints(max_length=63, pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")]
Chip = Literal["910B", "910C"]
RoleType = Literal["Prefill", "Decode"]
Message = Annotated[str, StringConstraints(max_length=1024)]
Timestamp = Annotated[str, StringConstraints(max_length=32), Field(json_schema_extra={"format": "date-time"})]


class Rule(NamedTuple):
    """A CEL rule checked by the API server at admission.

    ``field`` is the path, below the type that carries the rule, of the field to blame: ``.chips``; empty blames
    the object. Transition rules mention ``oldSelf`` and are checked at updates only.
    """

    expression: str
    message: str
    field: str = ""
    reason: Literal["FieldValueInvalid", "FieldValueForbidden"] = "FieldValueInvalid"

    def to_wire(self) -> JsonDict:
        """The entry of ``x-kubernetes-validations``."""
        entry: JsonDict = {"rule": self.expression, "message": self.message, "reason": self.reason}
        return entry | {"fieldPath": self.field} if self.field else entry


def immutable(field: str, advice: str) -> Rule:
    """A rule that refuses any change of the required or defaulted ``field``, saying what to do instead."""
    return Rule(f"self.{field} == oldSelf.{field}", f"immutable; {advice}", f".{field}", "FieldValueForbidden")


def admission(*rules: Rule) -> ConfigDict:
    """A ``model_config`` that attaches CEL rules to a type."""
    return ConfigDict(json_schema_extra={"x-kubernetes-validations": [rule.to_wire() for rule in rules]})


def list_map(*keys: str) -> dict[str, Any]:
    """``json_schema_extra`` of a list of objects told apart by ``keys``: entries are merged and compared by key."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def atomic_list() -> dict[str, Any]:
    """``json_schema_extra`` of a list that is always replaced as a whole, since its order has a meaning."""
    return {"x-kubernetes-list-type": "atomic"}


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

    type: Annotated[str, StringConstraints(max_length=64, pattern=r"^[A-Z][A-Za-z0-9]*$")] = Field(
        description="Kind of condition, e.g. Ready."
    )
    status: Literal["True", "False", "Unknown"] = Field(description="Whether the condition holds.")
    reason: Annotated[str, StringConstraints(max_length=64, pattern=r"^[A-Z][A-Za-z0-9]*$")] = Field(
        description="One word in CamelCase that says why."
    )
    message: Message = Field(default="", description="Why, for people; says what to do when something is wrong.")
    last_transition_time: Timestamp = Field(description="When status last changed, RFC 3339.")
    observed_generation: int = Field(default=0, ge=0, description="Generation of the spec this was judged on.")


Conditions = Annotated[
    list[Condition],
    Field(max_length=16, description="Current state in words, one entry a type.", json_schema_extra=list_map("type")),
]

Chips = Annotated[
    list[Chip],
    Field(
        min_length=1,
        max_length=2,
        description="Chips it may run on, preferred first. Decode runs on 910C only.",
        json_schema_extra=atomic_list(),
    ),
]


def chip_rules(role_field: str) -> tuple[Rule, ...]:
    """Rules of a type that has ``chips`` and ``parallelism``; ``role_field`` names its field Prefill or Decode."""
    return (
        Rule(f"self.{role_field} != 'Decode' || self.chips.all(c, c == '910C')", "Decode runs on 910C only", ".chips"),
        Rule("self.chips.all(c, self.chips.exists_one(d, d == c))", "each chip at most once", ".chips"),
        Rule(
            "self.parallelism.tp <= 8 || '910C' in self.chips",
            "at most 8 on 910B, whose servers have 8 dies",
            ".parallelism.tp",
        ),
    )
