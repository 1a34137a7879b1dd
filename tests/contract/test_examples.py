"""Every example is valid, and asks for what its comment says."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from xdeepserve_operator.api.names import API_VERSION
from xdeepserve_operator.api.v1alpha1.deployment import ModelDeploymentSpec
from xdeepserve_operator.api.v1alpha1.fault import FaultInjectionSpec
from xdeepserve_operator.api.v1alpha1.kinds import KINDS
from xdeepserve_operator.api.v1alpha1.superpod import SuperPodSpec

EXAMPLES = Path(__file__).parents[2] / "examples"
SPECS = {kind.kind: kind.spec for kind in KINDS}


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / name).read_text(encoding="utf-8")))


def specs(name: str) -> dict[str, Any]:
    """Kind to validated spec, of a file with one object a kind."""
    return {document["kind"]: SPECS[document["kind"]].model_validate(document["spec"]) for document in documents(name)}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_an_example_is_valid(path: Path) -> None:
    for document in documents(path.name):
        assert set(document) == {"apiVersion", "kind", "metadata", "spec"}
        assert document["apiVersion"] == API_VERSION
        SPECS[document["kind"]].model_validate(document["spec"])


def test_the_quickstart_serves_the_model_that_comes_with_it() -> None:
    deployment: ModelDeploymentSpec = specs("quickstart.yaml")["ModelDeployment"]
    superpod: SuperPodSpec = specs("quickstart.yaml")["SuperPod"]
    assert deployment.superpod_ref.name == "pod-a"
    assert {pool.chip: pool.dies_per_node for pool in superpod.pools} == {"910B": 8, "910C": 16}
    checkpoint = EXAMPLES / "models" / deployment.model.uri.removeprefix("file:///models/")
    assert (checkpoint / "config.json").is_file()
    prefill, decode = deployment.roles
    assert (prefill.type, prefill.chips) == ("Prefill", ["910B"])
    assert (decode.type, decode.chips, decode.parallelism.dp, decode.parallelism.ep) == ("Decode", ["910C"], 2, 2)


def test_the_fault_strikes_the_quickstarts_decode_instance() -> None:
    fault: FaultInjectionSpec = specs("fault-die-kill.yaml")["FaultInjection"]
    (_, deployment) = documents("quickstart.yaml")
    assert fault.target.task_executor == f"{deployment['metadata']['name']}-decode"
    assert fault.fault.type == "DieKill"


def test_too_big_needs_more_dies_than_four_910c_servers_have() -> None:
    decode = specs("too-big.yaml")["ModelDeployment"].roles[1]
    assert decode.replicas * decode.parallelism.dp * decode.parallelism.tp > 4 * 16
