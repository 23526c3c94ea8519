"""`fleetwright nodes` and `fleetwright events` against a service."""

import json

from api.client import Client
from api.schemas.faults import DiagnosisReport
from tests.testbed.cli import Cli
from tests.testbed.fault_bundles import node_diagnosis
from tests.testbed.server import ADMIN_TOKEN


def report(service: str, node: str) -> str:
    with Client(service, token=ADMIN_TOKEN) as client:
        return client.report_diagnosis(
            DiagnosisReport.model_validate(node_diagnosis(node) | {"expires_in_s": 3600.0})
        ).id


def test_nodes_are_listed_and_shown(remote: Cli, service: str) -> None:
    diagnosis = report(service, "of-the-command")
    listed = remote("nodes", "--diagnosed")
    (row,) = [line.split() for line in listed.stdout.splitlines() if line.startswith("of-the-command")]
    assert row[1] == "serving"
    assert [node["name"] for node in remote("nodes", "--state", "quarantined", "-o", "json").json] == []
    shown = remote("nodes", "of-the-command")
    assert "serving" in shown.fields["state"]
    assert diagnosis in shown.stdout
    assert remote("nodes", "of-the-command", "-o", "json").json["diagnoses"][0]["id"] == diagnosis


def test_an_unknown_node_and_a_node_with_a_filter_are_refused(remote: Cli) -> None:
    assert "there is no node 'other'" in remote("nodes", "other").refused[0]
    wrong = remote("nodes", "other", "--state", "serving")
    assert (wrong.code, wrong.refused) == (
        2,
        ["--state, --gpu and --diagnosed select from all nodes: give no NODE with them"],
    )


def test_events_are_printed_one_a_line(remote: Cli, service: str) -> None:
    diagnosis = report(service, "of-the-events")
    lines = remote("events", "--type", "diagnosis.", "-o", "json").stdout.splitlines()
    newest = json.loads(lines[-1])
    assert (newest["type"], newest["subject"]) == ("diagnosis.reported", f"faults/diagnoses/{diagnosis}")
    assert {json.loads(line)["type"].partition(".")[0] for line in lines} == {"diagnosis"}
    (printed,) = remote("events", "--after", str(newest["id"] - 1), "--type", "diagnosis.").stdout.splitlines()
    assert printed.split() == [str(newest["id"]), *printed.split()[1:3], newest["type"], newest["subject"]]
    assert remote("events", "--after", str(newest["id"])).stdout == ""
    gone = remote("events", "--after", "2000000000")
    assert (gone.code, "read the state again" in gone.refused[0]) == (1, True)
