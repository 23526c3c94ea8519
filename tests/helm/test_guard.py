"""Tests the power guard in the chart: off by default, then observing, then acting if enabled; its file is valid."""

import base64
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from api.cli.app import app
from deploy.node_agent.schemas import ActuationMode
from deploy.power_guard.config import GuardFile
from fleet.documents import parse_document, read_model
from tests.helm.chart import Object, container, kinds, one, render
from tests.testbed.helm import Helm, HelmError

ROW = {
    "row": "row-a",
    "settings": {"rating_w": 211000},
    "agents": [{"name": f"n{at}", "url": f"http://n{at}.invalid:9403", "duty": "low"} for at in range(3)],
}
ON = ["--set-json", f"powerGuards.row-a.config={json.dumps(ROW)}"]
TOKENS = [
    "--set",
    "powerGuards.row-a.agentToken.existingSecret=agents,powerGuards.row-a.budgetToken.existingSecret=budgets",
]
FETCHING = ["--set", "powerGuards.row-a.apiToken.existingSecret=api"]


def guard_file(objects: list[Object]) -> GuardFile:
    text = base64.b64decode(one(objects, "Secret", "-guard-row-a")["data"]["guard.json"]).decode()
    return read_model(parse_document(text, name="guard.json"), GuardFile)


def test_the_guard_is_off_by_default(helm3: Helm) -> None:
    assert not [item for item in render(helm3) if "guard" in item["metadata"]["name"]]


def test_the_guard_observes_unless_apply_is_set(helm3: Helm) -> None:
    assert guard_file(render(helm3, *ON)).mode is ActuationMode.OBSERVE
    assert guard_file(render(helm3, *ON, "--set", "powerGuards.row-a.apply=true")).mode is ActuationMode.APPLY


def test_one_replica_runs_at_a_time(helm3: Helm) -> None:
    deployment = one(render(helm3, *ON), "Deployment", "-guard-row-a")
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]) == (1, {"type": "Recreate"})


def test_the_file_matches_the_values(helm3: Helm) -> None:
    file = guard_file(render(helm3, *ON))
    assert (file.row, file.settings.rating_w, [agent.name for agent in file.agents]) == (
        "row-a",
        211000,
        ["n0", "n1", "n2"],
    )
    assert (file.agent_token_file, file.budget_token_file, file.budgets_from) == (None, None, None)


def test_tokens_are_mounted_at_the_paths_of_the_file(helm3: Helm) -> None:
    objects = render(helm3, *ON, *TOKENS)
    file, mounts = guard_file(objects), container(one(objects, "Deployment", "-guard-row-a"))["volumeMounts"]
    folders = {Path(mount["mountPath"]) for mount in mounts}
    for path in (file.agent_token_file, file.budget_token_file):
        assert path is not None
        assert path.parent in folders


def test_with_a_token_the_budget_is_fetched_from_the_api_of_the_release(helm3: Helm) -> None:
    objects = render(helm3, *ON, *FETCHING)
    budget_source = guard_file(objects).budgets_from
    assert budget_source is not None
    api, mounts = one(objects, "Service", "-api"), container(one(objects, "Deployment", "-guard-row-a"))["volumeMounts"]
    assert budget_source.url == f"http://{api['metadata']['name']}:{api['spec']['ports'][0]['port']}"
    assert budget_source.token_file is not None
    assert budget_source.token_file.parent in {Path(mount["mountPath"]) for mount in mounts}
    egress = one(objects, "NetworkPolicy", "-guard-row-a")["spec"]["egress"]
    assert {each["port"] for rule in egress for each in rule["ports"]} == {53, 8400, 9403}
    assert guard_file(render(helm3, *ON)).budgets_from is None


def test_the_command_line_accepts_every_argument(helm3: Helm) -> None:
    arguments = container(one(render(helm3, *ON), "Deployment", "-guard-row-a"))["args"]
    done = CliRunner().invoke(app, [*arguments, "--help"])
    assert done.exit_code == 0, done.output
    assert "--config" in arguments


def test_pods_restart_when_the_file_changes(helm3: Helm) -> None:
    def checksum(*arguments: str) -> str:
        template = one(render(helm3, *ON, *arguments), "Deployment", "-guard-row-a")["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/config"])

    assert checksum() == checksum()
    assert checksum() != checksum("--set", "powerGuards.row-a.apply=true")


def test_the_guard_accepts_requests_on_its_port_and_reaches_its_agents(helm3: Helm) -> None:
    objects = render(helm3, *ON)
    policy = one(objects, "NetworkPolicy", "-guard-row-a")["spec"]
    (port,) = container(one(objects, "Deployment", "-guard-row-a"))["ports"]
    (ingress,) = policy["ingress"]
    assert [each["port"] for each in ingress["ports"]] == [port["containerPort"]]
    assert {each["port"] for rule in policy["egress"] for each in rule["ports"]} == {53, 9403}
    (served,) = one(objects, "Service", "-guard-row-a")["spec"]["ports"]
    assert served["targetPort"] == port["name"]


def test_the_guard_is_scraped_by_a_pod_monitor(helm3: Helm) -> None:
    objects = render(helm3, *ON, "--set", "monitoring.serviceMonitor.enabled=true")
    assert "PodMonitor" in kinds(objects)
    (endpoint,) = one(objects, "PodMonitor", "-guard-row-a")["spec"]["podMetricsEndpoints"]
    assert endpoint["path"] == "/metrics"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set-json", "powerGuards.row-a={}"], "powerGuards.row-a.config has no settings"),
        ([*ON, "--set", "powerGuards.row-a.config.mode=apply"], "dditional propert.*mode"),
        ([*ON, "--set", "powerGuards.row-a.budget=5"], "dditional propert.*budget"),
    ],
)
def test_inconsistent_values_are_refused(helm: Helm, arguments: list[str], message: str) -> None:
    with pytest.raises(HelmError, match=message):
        render(helm, *arguments)
