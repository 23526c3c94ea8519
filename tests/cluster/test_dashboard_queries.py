"""Runs every query of dashboards and alerts on a real Prometheus that scrapes every process of a release."""

import pytest
import yaml

from scripts.dashboards.__main__ import DASHBOARDS
from scripts.dashboards.promql import filled_in
from tests.helm.chart import ALERTS
from tests.testbed.observed_release import NAMESPACE, observed_release
from tests.testbed.prometheus import Prometheus
from tests.testbed.waiting import wait_for

__all__ = ["observed_release"]  # a fixture

pytestmark = [pytest.mark.prometheus, pytest.mark.kubernetes, pytest.mark.timeout(1200)]


def test_every_query_returns_samples(observed_release: Prometheus) -> None:
    panels = [panel for dashboard in DASHBOARDS for row in dashboard.rows for panel in row.panels]
    queries = {(panel.title, filled_in(query.expr, NAMESPACE)) for panel in panels for query in panel.queries}
    empty = wait_for(
        lambda: [(title, expr) for title, expr in queries if not observed_release.query(expr)],
        lambda found: found == [],
        what="samples of every query",
        timeout_s=120.0,
    )
    assert empty == []

    jobs = {sample.labels["training_job"] for sample in observed_release.query("fleetwright_faults_agents")}
    assert jobs == {"llm-7b"}

    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    pending = {rule["alert"] for rule in rules if "alert" in rule and observed_release.query(rule["expr"])}
    assert pending == {"FleetwrightPlanNotApplied"}
