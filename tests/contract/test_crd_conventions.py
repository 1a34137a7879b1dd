"""The Kubernetes API conventions, and our own rules on schemas, hold for every field of every kind."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from xdeepserve_operator.api.crdgen import custom_resource_definition
from xdeepserve_operator.api.v1alpha1.kinds import KINDS, Kind

Schema = dict[str, Any]
UNITS = {
    "Milliseconds": r"\bms\b",
    "Seconds": r"\bs\b",
    "Bytes": r"\bbytes\b",
    "Tokens": r"\btokens?\b",
    "Blocks": r"\bblocks?\b",
    "Percent": r"%",
    "cpu": r"\bcores\b",
    "memory": r"\bMiB\b",
}
CONDITION = {"type", "status", "reason", "message", "lastTransitionTime", "observedGeneration"}


def root_schema(kind: Kind) -> Schema:
    version = custom_resource_definition(kind)["spec"]["versions"][0]
    schema: Schema = version["schema"]["openAPIV3Schema"]
    return schema


def walk(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """Every node below spec and status with its path."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    for key, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if key in schema:
            yield from walk(schema[key], path + suffix)


def nodes(kind: Kind) -> list[tuple[str, Schema]]:
    properties = root_schema(kind)["properties"]
    return [node for part in ("spec", "status") for node in walk(properties[part], part)]


every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)


@every_kind
def test_every_field_is_described_with_its_unit(kind: Kind) -> None:
    for path, schema in nodes(kind):
        if path.endswith(("[]", "{}")):
            continue
        description = schema.get("description", "")
        assert description.endswith((".", "'.")), f"{path}: {description!r}"
        for word, unit in UNITS.items():
            if path.endswith(word):
                assert re.search(unit, description), f"{path}: {description!r} does not say its unit"


@every_kind
def test_every_string_list_and_map_is_bounded(kind: Kind) -> None:
    for path, schema in nodes(kind):
        match schema["type"]:
            case "string":
                assert "enum" in schema or "maxLength" in schema, path
            case "array":
                assert schema["maxItems"] <= 1024, path
            case "object" if "additionalProperties" in schema:
                assert schema["maxProperties"] <= 64, path
            case "object":
                assert schema["properties"], f"{path}: an object of anything"


@every_kind
def test_every_number_a_user_may_write_is_bounded(kind: Kind) -> None:
    for path, schema in nodes(kind):
        if schema["type"] == "integer" and path.startswith("spec"):
            assert schema["minimum"] <= schema["maximum"], path


@every_kind
def test_there_are_no_floats_and_no_open_ends(kind: Kind) -> None:
    for path, schema in nodes(kind):
        assert schema["type"] in {"array", "boolean", "integer", "object", "string"}, path
        assert "x-kubernetes-preserve-unknown-fields" not in schema, path
        assert "x-kubernetes-int-or-string" not in schema, path


@every_kind
def test_every_list_says_how_it_is_merged(kind: Kind) -> None:
    for path, schema in nodes(kind):
        if schema["type"] != "array":
            continue
        if schema["items"]["type"] == "object":
            assert schema["x-kubernetes-list-type"] == "map", path
            assert set(schema["x-kubernetes-list-map-keys"]) <= set(schema["items"]["required"]), path
        else:
            assert schema["x-kubernetes-list-type"] in {"atomic", "set"}, path


@every_kind
def test_conditions_have_the_common_shape(kind: Kind) -> None:
    conditions = root_schema(kind)["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    item = conditions["items"]
    assert set(item["properties"]) == CONDITION
    assert {"type", "status", "reason", "lastTransitionTime"} <= set(item["required"])
    assert item["properties"]["status"]["enum"] == ["True", "False", "Unknown"]
    assert item["properties"]["lastTransitionTime"]["format"] == "date-time"


@every_kind
def test_status_is_a_subresource_without_defaults(kind: Kind) -> None:
    version = custom_resource_definition(kind)["spec"]["versions"][0]
    assert version["subresources"]["status"] == {}
    assert not [path for path, schema in nodes(kind) if path.startswith("status") and "default" in schema]


@every_kind
def test_names_are_camel_case(kind: Kind) -> None:
    names = [path.rpartition(".")[2] for path, _ in nodes(kind)]
    assert [name for name in names if not re.fullmatch(r"[a-z][A-Za-z0-9]*(\[\]|\{\})*", name)] == []


@every_kind
def test_every_rule_blames_a_declared_field(kind: Kind) -> None:
    for path, schema in [("", root_schema(kind)), *nodes(kind)]:
        for rule in schema.get("x-kubernetes-validations", []):
            assert rule["message"], path
            blamed = schema
            for step in rule.get("fieldPath", "").split(".")[1:]:
                blamed = blamed["properties"][step]


@every_kind
def test_every_column_shows_a_declared_field(kind: Kind) -> None:
    for column in kind.columns:
        if column.path.startswith(".metadata"):
            continue
        schema = root_schema(kind)
        for step in re.sub(r"\[[^]]*\]", ".[]", column.path).split(".")[1:]:
            schema = schema["items"] if step == "[]" else schema["properties"][step]
        assert column.type == ("integer" if schema["type"] == "integer" else "string"), column.name


@every_kind
def test_columns_begin_with_what_matters_and_end_with_age(kind: Kind) -> None:
    names = [column.name for column in kind.columns]
    assert names[-1] == "Age"
    assert "Reason" in [column.name for column in kind.columns if not column.wide]
    assert len(set(names)) == len(names)


def test_names_of_kinds_do_not_clash() -> None:
    names = [name for kind in KINDS for name in (kind.plural, kind.singular, *kind.short_names)]
    assert len(set(names)) == len(names)
