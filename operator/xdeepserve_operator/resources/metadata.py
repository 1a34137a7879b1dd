"""Metadata of children: owner reference and labels."""

from collections.abc import Mapping
from typing import Any

from xdeepserve_operator.api import names


def owner_reference(owner: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """A controlling reference to an object of our group: the garbage collector deletes the child with it."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def child_metadata(
    owner: Mapping[str, Any],
    owner_kind: str,
    name: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Metadata of a child in the owner's namespace."""
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": owner["metadata"]["namespace"],
        "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY, **labels},
        "ownerReferences": [owner_reference(owner, owner_kind)],
    }
    if annotations:
        metadata["annotations"] = dict(annotations)
    return metadata


def deployment_labels(deployment: str) -> dict[str, str]:
    """Labels of what belongs to a ModelDeployment."""
    return {names.LABEL_DEPLOYMENT: deployment}


def executor_labels(executor: Mapping[str, Any]) -> dict[str, str]:
    """Labels of what belongs to a TaskExecutor: its own name, its role, its ModelDeployment's name."""
    labels = {names.LABEL_EXECUTOR: executor["metadata"]["name"], names.LABEL_ROLE: executor["spec"]["role"]}
    deployment = (executor["metadata"].get("labels") or {}).get(names.LABEL_DEPLOYMENT)
    return labels | (deployment_labels(deployment) if deployment else {})


def instance_labels(executor: Mapping[str, Any], replica: int) -> dict[str, str]:
    """Labels of what belongs to one replica, and goes with this life of the TaskExecutor."""
    uid = {names.LABEL_EXECUTOR_UID: executor["metadata"]["uid"]}
    return {**executor_labels(executor), **uid, names.LABEL_REPLICA: str(replica)}
