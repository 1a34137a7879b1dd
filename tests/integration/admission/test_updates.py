"""Immutable fields stay as they are; everything else may change."""

from collections import Counter
from typing import Any

import pytest
from admission_samples import (
    DP_GROUP,
    EXPERT_PLACEMENT,
    FAULT_INJECTION,
    MODEL_DEPLOYMENT,
    SCALING_POLICY,
    TASK_EXECUTOR,
    Object,
    cel_rules,
    changed,
)

PREFILL_ON_910C = [
    {"name": "prefill", "type": "Prefill", "chips": ["910B"]},
    {"name": "decode", "type": "Prefill", "chips": ["910C"]},
    {"name": "decode-2", "type": "Decode", "chips": ["910C"]},
]


IMMUTABLE = [
    (TASK_EXECUTOR, "spec.role", "Prefill", "spec.role"),
    (TASK_EXECUTOR, "spec.superPodRef.name", "pod-b", "spec.superPodRef"),
    (MODEL_DEPLOYMENT, "spec.superPodRef.name", "pod-b", "spec.superPodRef"),
    (MODEL_DEPLOYMENT, "spec.roles", PREFILL_ON_910C, "spec.roles[1].type"),
    (DP_GROUP, "spec.role", "Prefill", "spec.role"),
    (DP_GROUP, "spec.replica", 1, "spec.replica"),
    (DP_GROUP, "spec.index", 1, "spec.index"),
    (DP_GROUP, "spec.executorRef.name", "other", "spec.executorRef"),
    (FAULT_INJECTION, "spec.durationSeconds", 30, "spec"),
    (SCALING_POLICY, "spec.targetRef.name", "other", "spec.targetRef"),
    (EXPERT_PLACEMENT, "spec.targetRef.name", "other", "spec.targetRef"),
]


@pytest.mark.parametrize(
    ("sample", "path", "value", "field"), IMMUTABLE, ids=[f"{row[0]['kind']}-{row[3]}" for row in IMMUTABLE]
)
async def test_an_immutable_field_cannot_change(
    admission: Any, sample: Object, path: str, value: object, field: str
) -> None:
    stored = await admission.create(sample, keep=True)
    try:
        message = await admission.refusal(changed(stored, path, value), update=True)
    finally:
        await admission.delete(sample)
    assert f"{field}: " in message
    assert "immutable; " in message


def test_no_immutable_field_was_forgotten() -> None:
    declared = Counter(kind for kind, message in cel_rules() if message.startswith("immutable; "))
    assert Counter(row[0]["kind"] for row in IMMUTABLE) == declared


@pytest.mark.parametrize(
    ("sample", "path", "value"),
    [
        (TASK_EXECUTOR, "spec.replicas", 3),
        (TASK_EXECUTOR, "spec.parallelism", {"dp": 4, "ep": 4}),
        (MODEL_DEPLOYMENT, "spec.roles.1.replicas", 2),
        (MODEL_DEPLOYMENT, "spec.roles", [PREFILL_ON_910C[0], PREFILL_ON_910C[2]]),
        (DP_GROUP, "spec.node", "server-4"),
        (DP_GROUP, "spec.attempt", 99999),
        (FAULT_INJECTION, "metadata.labels", {"drill": "monday"}),
    ],
)
async def test_other_fields_can_change(admission: Any, sample: Object, path: str, value: object) -> None:
    stored = await admission.create(sample, keep=True)
    try:
        await admission.update(changed(stored, path, value))
    finally:
        await admission.delete(sample)
