"""Tests the alert rules with promtool, and that the service exports the metrics they use."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.chart import ALERTS, ROOT
from tests.testbed.prometheus import PrometheusError, Promtool

pytestmark = pytest.mark.prometheus

UNIT_TESTS = Path(__file__).parent / "alerts_test.yaml"


def all_rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def rules() -> list[dict[str, Any]]:
    return [rule for rule in all_rules() if "alert" in rule]


def test_promtool_accepts_the_rules(promtool: Promtool) -> None:
    assert f"{len(all_rules())} rules found" in promtool.check_rules(ALERTS)


def test_every_window_of_a_burn_rate_is_recorded_for_every_objective() -> None:
    recorded = {(rule["record"], rule["labels"]["slo"]) for rule in all_rules() if "record" in rule}
    used = {
        found
        for rule in rules()
        for found in re.findall(r'(fleetwright:slo_errors:\w+)\{slo="([\w-]+)"\}', rule["expr"])
    }
    assert used == recorded
    assert len(used) == 4 * 5


def test_alerts_pass_their_unit_tests(promtool: Promtool) -> None:
    assert "SUCCESS" in promtool.test_rules(UNIT_TESTS)


def test_a_changed_rule_fails_its_unit_test(promtool: Promtool, tmp_path: Path) -> None:
    (tmp_path / "alerts.yaml").write_text(ALERTS.read_text().replace("== 0\n", "== 1\n"))
    tests = yaml.safe_load(UNIT_TESTS.read_text()) | {"rule_files": ["alerts.yaml"]}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tests))
    with pytest.raises(PrometheusError, match="FleetwrightDatabaseDown"):
        promtool.test_rules(tmp_path / "tests.yaml")


def test_every_alert_has_a_firing_and_a_silent_test_case() -> None:
    cases = [case for each in yaml.safe_load(UNIT_TESTS.read_text())["tests"] for case in each["alert_rule_test"]]
    names = {rule["alert"] for rule in rules()}
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == names
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == names


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_has_a_severity_a_summary_and_a_description(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"info", "warning", "critical"}
    assert rule["annotations"]["summary"].endswith(".")
    assert len(rule["annotations"]["description"]) > len(rule["annotations"]["summary"])


def test_the_metrics_page_lists_every_alert() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    listed = [
        tuple(cell.strip() for cell in line.split("|")[1:3]) for line in page.splitlines() if "| Fleetwright" in line
    ]
    assert listed == [(rule["alert"], rule["labels"]["severity"]) for rule in rules()]
