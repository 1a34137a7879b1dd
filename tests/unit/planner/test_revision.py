from typing import Any

import pytest

from xdeepserve_operator.api.v1alpha1.executor import TaskExecutorSpec
from xdeepserve_operator.planner.revision import pair_of, revision_of

BASE: dict[str, Any] = {
    "role": "Prefill",
    "chips": ["910B", "910C"],
    "superPodRef": {"name": "pod-a"},
    "model": {"name": "m", "uri": "file:///m"},
}


def revision(image: str = "img:1", **changes: Any) -> str:
    return revision_of(TaskExecutorSpec.model_validate(BASE | changes), image)


@pytest.mark.parametrize(
    "change",
    [
        {"replicas": 9},
        {"gang": {"name": "g", "members": 2}},
        {"chips": ["910C", "910B"]},
        {"controlTokenSecretRef": {"name": "s"}},
        {"parallelism": {"dp": 1}},
    ],
)
def test_what_pods_do_not_depend_on_restarts_nothing(change: dict[str, Any]) -> None:
    assert revision(**change) == revision()


@pytest.mark.parametrize(
    "change",
    [
        {"parallelism": {"dp": 2, "ep": 2}},
        {"chips": ["910C"]},
        {"tuning": {"kvBlocks": 64}},
        {"resources": {"memory": "1Gi"}},
        {"role": "Decode", "chips": ["910C"]},
    ],
)
def test_a_change_of_the_instance_changes_it_and_keeps_the_pair(change: dict[str, Any]) -> None:
    assert revision(**change) != revision()
    assert pair_of(revision(**change)) == pair_of(revision()), "prefill and decode still understand each other"


@pytest.mark.parametrize(
    "change",
    [{"image": "img:2"}, {"model": {"name": "m", "uri": "file:///n"}}, {"model": {"name": "n", "uri": "file:///m"}}],
)
def test_another_checkpoint_or_image_is_another_pair(change: dict[str, Any]) -> None:
    assert pair_of(revision(**change)) != pair_of(revision())


def test_a_revision_is_a_label_value_and_an_identifier() -> None:
    assert len(revision()) == 21
    assert revision().replace("-", "").isalnum()
