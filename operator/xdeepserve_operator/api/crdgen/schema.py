"""From a pydantic type to a structural schema, the subset of OpenAPI that the API server takes.

A walk over pydantic's own JSON schema: references are inlined, ``X | None`` becomes an optional ``X``, titles and
``additionalProperties: false`` go (the API server prunes unknown fields itself), integers get their format.
Every keyword is either understood or refused with the path of the field, so that nothing is lost silently, and
what cannot be had in a structural schema (recursion, unions, floats) is refused here rather than by a cluster.

A default made by a factory is written out in full, since the API server judges it by the CEL rules of its type
before it would fill an empty object. Statuses get no defaults: the API server would add fields that nobody owns.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, NoDefault
from pydantic_core import core_schema

Schema = dict[str, Any]

_DROPPED = {"title", "$defs"}
# In the order they are written, so that the files do not follow the whims of a pydantic version.
_KEYWORDS = (
    "description",
    "type",
    "format",
    "default",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
    "required",
    "items",
    "additionalProperties",
    "properties",
)
_TYPES = {"array", "boolean", "integer", "object", "string"}
_INT32_MAX = 2**31 - 1


class SchemaError(ValueError):
    """A type that no structural schema can express; the message starts with the path of the field."""


def structural_schema(model: type[BaseModel], *, defaults: bool) -> Schema:
    """The structural schema of ``model``, with or without default values.

    Raises SchemaError for what the API server would refuse.
    """
    document = model.model_json_schema(by_alias=True, schema_generator=_WithFactories)
    return _Walk(document.get("$defs", {}), defaults).node(document, model.__name__, ())


class _WithFactories(GenerateJsonSchema):
    """Tells defaults that are made by a factory too."""

    def get_default_value(self, schema: core_schema.WithDefaultSchema) -> Any:
        if "default_factory" not in schema or schema.get("default_factory_takes_data"):
            return schema.get("default", NoDefault)
        value = schema["default_factory"]()  # type: ignore[call-arg]  # it takes no data, as was asked above
        return (
            value.model_dump(by_alias=True, exclude_none=True, mode="json") if isinstance(value, BaseModel) else value
        )


class _Walk:
    """One pass over a document; ``parents`` are the references on the way down, to notice recursion."""

    def __init__(self, definitions: Mapping[str, Schema], defaults: bool) -> None:
        self._definitions = definitions
        self._defaults = defaults

    def node(self, raw: Schema, path: str, parents: tuple[str, ...]) -> Schema:
        """The structural form of one node."""
        raw, parents = self._resolve(raw, path, parents)
        if raw.get("type") not in _TYPES:
            raise SchemaError(f"{path}: type {raw.get('type')!r} is not one of {', '.join(sorted(_TYPES))}")
        if unknown := raw.keys() - _DROPPED - set(_KEYWORDS):
            raise SchemaError(f"{path}: a structural schema has no {', '.join(sorted(unknown))}")
        out = {keyword: value for keyword, value in raw.items() if keyword not in _DROPPED}
        if out["type"] == "integer":
            out["format"] = "int32" if out.get("maximum", _INT32_MAX + 1) <= _INT32_MAX else "int64"
        if not self._defaults or out.get("default") is None:
            out.pop("default", None)
        if out.get("additionalProperties") is True:
            raise SchemaError(f"{path}: a map of anything; give its values a type")
        if out.get("additionalProperties") is False:
            del out["additionalProperties"]
        for keyword, suffix in (("items", "[]"), ("additionalProperties", "{}")):
            if keyword in out:
                out[keyword] = self.node(out[keyword], path + suffix, parents)
        if "properties" in out:
            children = out["properties"].items()
            out["properties"] = {name: self.node(child, f"{path}.{name}", parents) for name, child in children}
        return {keyword: out[keyword] for keyword in _KEYWORDS if keyword in out}

    def _resolve(self, raw: Schema, path: str, parents: tuple[str, ...]) -> tuple[Schema, tuple[str, ...]]:
        """Replaces optional unions, references and constants until a plain node is left; outer keywords win."""
        while True:
            if "anyOf" in raw:
                options = [option for option in raw["anyOf"] if option.get("type") != "null"]
                if len(options) != 1:
                    raise SchemaError(f"{path}: a union of {len(options)} types; only X | None is possible")
                inner = options[0]
            elif "$ref" in raw:
                name = raw["$ref"].rpartition("/")[2]
                if name in parents:
                    raise SchemaError(f"{path}: {name} contains itself")
                parents, inner = (*parents, name), self._definitions[name]
            elif "const" in raw:
                inner = {"enum": [raw["const"]]}
            else:
                return raw, parents
            raw = inner | {key: value for key, value in raw.items() if key not in ("anyOf", "$ref", "const")}
