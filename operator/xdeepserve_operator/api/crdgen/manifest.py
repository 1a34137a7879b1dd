"""From a kind to its CustomResourceDefinition (apiextensions.k8s.io/v1)."""

from typing import Any

from xdeepserve_operator.api.crdgen.schema import structural_schema
from xdeepserve_operator.api.names import GROUP, VERSION
from xdeepserve_operator.api.v1alpha1.kinds import Column, Kind


def custom_resource_definition(kind: Kind) -> dict[str, Any]:
    """The manifest of ``kind``, ready to be applied.

    Helm keeps it when the chart goes: deleting a CRD would delete every object of the kind.
    """
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{GROUP}",
            "labels": {"app.kubernetes.io/part-of": "xdeepserve"},
            "annotations": {"helm.sh/resource-policy": "keep"},
        },
        "spec": {
            "group": GROUP,
            "scope": kind.scope,
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.singular,
                "shortNames": list(kind.short_names),
                "categories": ["xdeepserve"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": [_printer_column(column) for column in kind.columns],
                    **_selectable(kind),
                    "subresources": _subresources(kind),
                    "schema": {"openAPIV3Schema": _root_schema(kind)},
                }
            ],
        },
    }


def _root_schema(kind: Kind) -> dict[str, Any]:
    return {
        "type": "object",
        "description": kind.description,
        "required": ["spec"],
        "x-kubernetes-validations": [rule.to_wire() for rule in kind.rules],
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of the schema: serving.xdeepserve.io/v1alpha1."},
            "kind": {"type": "string", "description": f"Always {kind.kind}."},
            # Nothing but the name may be declared of it; declared, the rules on it may name it.
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 253}}},
            "spec": structural_schema(kind.spec, defaults=True),
            "status": structural_schema(kind.status, defaults=False),
        },
    }


def _selectable(kind: Kind) -> dict[str, Any]:
    return {"selectableFields": [{"jsonPath": path} for path in kind.selectable]} if kind.selectable else {}


def _subresources(kind: Kind) -> dict[str, Any]:
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    return {"status": {}} | ({"scale": scale} if kind.scalable else {})


def _printer_column(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": column.type,
        "description": column.description,
        "jsonPath": column.path,
        "priority": int(column.wide),
    }
