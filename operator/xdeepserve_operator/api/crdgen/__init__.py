"""Generates CustomResourceDefinitions from the pydantic types: schema, then manifest, then files."""

from xdeepserve_operator.api.crdgen.manifest import custom_resource_definition
from xdeepserve_operator.api.crdgen.schema import SchemaError, structural_schema

__all__ = ["SchemaError", "custom_resource_definition", "structural_schema"]
