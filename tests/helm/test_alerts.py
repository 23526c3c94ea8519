"""Tests the alert rules with promtool, and that the service exports the metrics they use."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.alert_lifetimes import lifetimes, write_tests
from tests.helm.chart import ALERTS, ROOT
from tests.testbed.prometheus import PrometheusError, Promtool

pytestmark = pytest.mark.prometheus

RUNBOOKS = "https://fleetwright.example/docs/runbooks/"
UNIT_TESTS = Path(__file__).parent / "alerts_test.yaml"


def all_rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def rules() -> list[dict[str, Any]]:
    return [rule for rule in all_rules() if "alert" in rule]


def test_promtool_accepts_the_rules(promtool: Promtool) -> None:
    assert f"{len(all_rules())} rules found" in promtool.check_rules(ALERTS)


def test_every_window_of_a_burn_rate_is_recorded_for_every_objective() -> None:
    recorded = {
        (rule["record"], rule["labels"]["slo"])
        for rule in all_rules()
        if "slo" in rule.get("labels", {}) and "record" in rule
    }
    used = {
        found
        for rule in rules()
        for found in re.findall(r'(namespace:fleetwright_slo_errors:\w+)\{slo="([\w-]+)"\}', rule["expr"])
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


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_has_a_severity_a_summary_and_a_description(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"info", "warning", "critical"}
    assert rule["annotations"]["summary"].endswith(".")
    assert len(rule["annotations"]["description"]) > len(rule["annotations"]["summary"])


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_links_to_a_section_of_a_runbook_with_cause_check_and_action(rule: dict[str, Any]) -> None:
    url = rule["annotations"]["runbook_url"]
    page, anchor = url.removeprefix(RUNBOOKS).split("/#")
    text = (ROOT / "docs" / "runbooks" / f"{page}.md").read_text()
    sections = {section.split("\n")[0].lower(): section for section in text.split("\n## ")[1:]}
    assert anchor == rule["alert"].lower()
    assert re.findall(r"- \*\*(\w+):\*\*", sections[anchor]) == ["Cause", "Check", "Action"]


def test_every_runbook_section_is_of_an_alert() -> None:
    texts = [page.read_text() for page in (ROOT / "docs" / "runbooks").glob("*.md")]
    sections = [title for text in texts for title in re.findall(r"^## (\w+)", text, re.MULTILINE)]
    assert sorted(sections) == sorted({rule["alert"] for rule in rules()})


def test_recording_rules_are_named_by_level_metric_and_operation() -> None:
    names = {rule["record"] for rule in all_rules() if "record" in rule}
    assert [name for name in names if not re.fullmatch(r"[a-z_]+:fleetwright_\w+:\w+", name)] == []


def test_every_alert_fires_lasts_two_hours_and_resolves(promtool: Promtool, tmp_path: Path) -> None:
    assert "SUCCESS" in promtool.test_rules(*write_tests(ALERTS, tmp_path))


def test_an_alert_that_forgets_its_cause_fails_the_test_of_its_lifetime(promtool: Promtool, tmp_path: Path) -> None:
    forgetful = tmp_path / "alerts.yaml"
    changed = ALERTS.read_text().replace("(max_over_time(fleetwright_gpu_up[1d]))", "(fleetwright_gpu_up offset 10m)")
    forgetful.write_text(changed)
    write_tests(forgetful, tmp_path)
    with pytest.raises(PrometheusError, match="FleetwrightAgentDown"):
        promtool.test_rules(tmp_path / "FleetwrightAgentDown.yaml")


def test_the_lifetime_of_every_alert_is_tested() -> None:
    tested = {(case.alert, case.severity) for case in lifetimes()}
    assert tested == {(rule["alert"], rule["labels"]["severity"]) for rule in rules()}
