"""From pydantic types to structural schemas: what is kept, what is translated, what is refused."""

from typing import Annotated, Literal

import pytest
from pydantic import Field

from xdeepserve_operator.api.crdgen import SchemaError, structural_schema
from xdeepserve_operator.api.v1alpha1.base import ApiModel, Rule, admission, immutable, list_map


class Leaf(ApiModel):
    """A leaf."""

    model_config = admission(
        Rule("self.sizeBytes > 1", "more than one", ".sizeBytes"), immutable("kind", "make another")
    )

    size_bytes: int = Field(default=4, ge=1, le=9, description="Size, in bytes.")
    kind: Literal["only"] = Field(default="only", description="The only kind.")


class Tree(ApiModel):
    """A tree."""

    leaf: Leaf = Field(default_factory=Leaf, description="Its first leaf.")
    spare: Leaf | None = Field(default=None, description="A spare one.")
    leaves: list[Leaf] = Field(max_length=3, description="More.", json_schema_extra=list_map("kind"))
    labels: dict[str, Annotated[str, Field(max_length=5)]] = Field(
        default_factory=dict, max_length=2, description="Words."
    )
    count: int | None = Field(default=None, ge=0, description="Without a largest value.")


def test_a_type_becomes_an_object_without_titles_or_closed_ends() -> None:
    schema = structural_schema(Tree, defaults=True)
    assert list(schema) == ["description", "type", "required", "properties"]
    assert (schema["description"], schema["type"], schema["required"]) == ("A tree.", "object", ["leaves"])


def test_a_reference_is_inlined_under_the_fields_own_description() -> None:
    leaf = structural_schema(Tree, defaults=True)["properties"]["leaf"]
    assert leaf["description"] == "Its first leaf."
    assert leaf["properties"]["kind"] == {
        "description": "The only kind.",
        "type": "string",
        "default": "only",
        "enum": ["only"],
    }


def test_rules_travel_with_their_type() -> None:
    for name in ("leaf", "spare"):
        assert structural_schema(Tree, defaults=True)["properties"][name]["x-kubernetes-validations"] == [
            {
                "rule": "self.sizeBytes > 1",
                "message": "more than one",
                "reason": "FieldValueInvalid",
                "fieldPath": ".sizeBytes",
            },
            {
                "rule": "self.kind == oldSelf.kind",
                "message": "immutable; make another",
                "reason": "FieldValueForbidden",
                "fieldPath": ".kind",
            },
        ]


def test_none_means_optional_and_nothing_else() -> None:
    properties = structural_schema(Tree, defaults=True)["properties"]
    assert "default" not in properties["spare"]
    assert properties["count"] == {
        "description": "Without a largest value.",
        "type": "integer",
        "format": "int64",
        "minimum": 0,
    }


def test_a_default_from_a_factory_is_written_out_in_full() -> None:
    properties = structural_schema(Tree, defaults=True)["properties"]
    assert properties["leaf"]["default"] == {"sizeBytes": 4, "kind": "only"}
    assert properties["labels"]["default"] == {}


def test_a_status_has_no_defaults_at_any_depth() -> None:
    assert "'default'" not in repr(structural_schema(Tree, defaults=False))


def test_integers_have_the_format_that_holds_them() -> None:
    assert structural_schema(Leaf, defaults=True)["properties"]["sizeBytes"]["format"] == "int32"


def test_lists_and_maps_keep_their_bounds() -> None:
    properties = structural_schema(Tree, defaults=True)["properties"]
    leaves, labels = properties["leaves"], properties["labels"]
    assert (leaves["maxItems"], leaves["x-kubernetes-list-type"]) == (3, "map")
    assert leaves["x-kubernetes-list-map-keys"] == ["kind"]
    assert labels["maxProperties"] == 2
    assert labels["additionalProperties"] == {"type": "string", "maxLength": 5}


class WithFloat(ApiModel):
    """Refused."""

    ratio: float


class WithUnion(ApiModel):
    """Refused."""

    either: int | str


class WithItself(ApiModel):
    """Refused."""

    child: "WithItself | None" = None


class WithStrictBound(ApiModel):
    """Refused."""

    count: int = Field(gt=0)


class WithAnything(ApiModel):
    """Refused."""

    values: list[dict[str, object]]


@pytest.mark.parametrize(
    ("model", "path", "what"),
    [
        (WithFloat, "WithFloat.ratio", "'number'"),
        (WithUnion, "WithUnion.either", "only X | None"),
        (WithItself, "WithItself.child", "contains itself"),
        (WithStrictBound, "WithStrictBound.count", "exclusiveMinimum"),
        (WithAnything, "WithAnything.values[]", "map of anything"),
    ],
)
def test_what_no_structural_schema_can_say_is_refused(model: type[ApiModel], path: str, what: str) -> None:
    with pytest.raises(SchemaError) as refusal:
        structural_schema(model, defaults=True)
    assert str(refusal.value).startswith(path)
    assert what in str(refusal.value)
