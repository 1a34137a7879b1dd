"""The dashboard asks for figures that exist, and what is to be scraped shows them where the charts say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from flowserve.engine import metrics as engine
from flowserve.engine.iteration import Tally
from flowserve.frontend.metrics import FrontendMetrics
from flowserve.shell import metrics as shell
from flowserve.wire import EngineStatus, RankReport, ShellStatus
from flowserve.wire_experts import ExpertHistory, ExpertSlice
from xdeepserve_operator.api import names
from xdeepserve_operator.api.v1alpha1.deployment import ModelDeploymentSpec
from xdeepserve_operator.resources import children
from xdeepserve_operator.resources.frontend import frontend_deployment
from xdeepserve_operator.resources.settings import EngineImage
from xdeepserve_operator.runtime.metrics import REGISTRY

OF_THE_TARGET = {"pod", "namespace", "container"}
ENABLED = ("dashboards.enabled=true", "podMonitors.enabled=true")
CHAT = ("podMonitors.deployments[0].name=chat", "podMonitors.deployments[0].namespace=models")


def pages() -> str:
    """All that anybody shows, with a value of everything."""
    said = EngineStatus(name="e", incarnation="i", fabric_uri="u", state="Serving")
    heard = RankReport(rank=0, host="h", silent_seconds=0, ever_heard=True, status=said)
    report = ShellStatus(instance="chat-decode-0", incarnation="s", epoch=1, ranks=(heard,), ready=True)
    one = ExpertSlice(sequence=1, seconds=1, epoch=1, version=0, chosen=((1, 1),), served=((2,),))
    history = ExpertHistory(incarnation="s", layers=(1,), slices=(one,))
    frontend = FrontendMetrics("m")
    frontend.finished("stop")
    for counter in (frontend.prompt_tokens, frontend.generation_tokens, frontend.retries, frontend.unserved):
        counter.inc()
    ranks = shell.render(report) + shell.render_experts(report, history)
    return frontend.render() + engine.render("m", said, Tally()) + ranks + generate_latest(REGISTRY).decode()


@pytest.fixture(scope="module")
def exposed() -> dict[str, set[str]]:
    """Names of samples to their labels; a histogram without any observation has no sample, only its name."""
    found: dict[str, set[str]] = {}
    text = pages()
    for name, labels in re.findall(r"^([a-z_:]\w*(?::\w+)?)(\{.*\})? ", text, re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    for name in re.findall(r"^# TYPE (\S+) histogram$", text, re.MULTILINE):
        found.setdefault(f"{name}_bucket", {"le", "kind"})
    return found


@pytest.fixture(scope="module")
def dashboard(root: Path) -> Any:
    return json.loads((root / "helm/xdeepserve/dashboards/serving.json").read_text(encoding="utf-8"))


def asked(dashboard: Any) -> list[tuple[str, str]]:
    """Every expression with its legend."""
    return [(one["expr"], one["legendFormat"]) for panel in dashboard["panels"] for one in panel.get("targets", ())]


def test_every_figure_that_is_asked_for_exists_with_the_labels_that_are_used(
    dashboard: Any, exposed: dict[str, set[str]]
) -> None:
    assert len(asked(dashboard)) > 20
    for expression, legend in asked(dashboard):
        figures = re.findall(r"\b(?:vllm:|xdeepserve[:_])\w+", expression)
        assert figures, expression
        for figure in figures:
            assert figure in exposed, f"{figure} in {expression}"
            used = {*re.findall(r"\{\{(\w+)\}\}", legend), *re.findall(r"(\w+)=~", expression)}
            by = {label for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(", ")}
            assert (used | by) - OF_THE_TARGET <= exposed[figure] | {"le"}, expression
            assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= by, f"{legend} is not told apart by {expression}"


def test_variables_are_filled_from_figures_that_exist(dashboard: Any, exposed: dict[str, set[str]]) -> None:
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            figure, label = re.findall(r"label_values\((\S+), (\w+)\)", variable["definition"])[0]
            assert label in exposed[figure]


def test_panels_do_not_overlap_and_say_what_they_show(dashboard: Any) -> None:
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    cells = [
        (x, y)
        for panel in dashboard["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert all(panel["description"].endswith(".") and panel["fieldConfig"]["defaults"]["unit"] for panel in panels)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_they_are_off_unless_asked_for(render: Any) -> None:
    assert not [one for one in render("xdeepserve") if one["kind"] in ("ConfigMap", "PodMonitor")]


def test_the_dashboard_reaches_the_config_map_as_it_is(render: Any, dashboard: Any) -> None:
    (found,) = [one for one in render("xdeepserve", *ENABLED) if one["kind"] == "ConfigMap"]
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(found["data"]["xdeepserve-serving.json"]) == dashboard


def test_monitors_find_the_pods_and_the_token(render: Any) -> None:
    objects = render("xdeepserve", *ENABLED, *CHAT)
    monitors = {one["metadata"]["name"]: one for one in objects if one["kind"] == "PodMonitor"}
    (operator,) = [one for one in objects if one["kind"] == "Deployment"]
    labels = operator["spec"]["template"]["metadata"]["labels"]
    assert monitors["xdeepserve-operator"]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    model = {"name": "m", "uri": "file:///models/m"}
    roles = [{"name": "p", "type": "Prefill", "chips": ["910B"]}, {"name": "d", "type": "Decode", "chips": ["910C"]}]
    spec = ModelDeploymentSpec.model_validate({"superPodRef": {"name": "pod-a"}, "model": model, "roles": roles})
    deployment = {"metadata": {"name": "chat", "namespace": "models", "uid": "u"}}
    template = frontend_deployment(deployment, spec, "chat-control", EngineImage("image"))["spec"]["template"]
    frontends = monitors["xdeepserve-frontends"]["spec"]
    assert frontends["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    ports = {port["name"]: port["containerPort"] for port in template["spec"]["containers"][0]["ports"]}
    assert ports[frontends["podMetricsEndpoints"][0]["port"]] == names.PORT_API
    engines = monitors["xdeepserve-model-chat"]
    assert engines["metadata"]["namespace"] == "models"
    assert engines["spec"]["selector"]["matchLabels"] == {names.LABEL_DEPLOYMENT: "chat"}
    (endpoint,) = engines["spec"]["podMetricsEndpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": children.control_secret_name("chat"), "key": "token"}
    assert endpoint["honorLabels"] is True, "the instance of a TaskExecutor is not that of a scrape"
