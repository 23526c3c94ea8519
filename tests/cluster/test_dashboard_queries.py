"""Runs every query of dashboards and alerts on a real Prometheus that scrapes every process of a release."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from scripts.dashboards.__main__ import DASHBOARDS
from scripts.dashboards.promql import filled_in
from tests.helm.chart import ALERTS
from tests.testbed.observed_release import NAMESPACE, observed_release
from tests.testbed.prometheus import Prometheus
from tests.testbed.server import StartServer
from tests.testbed.waiting import wait_for

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(600)]


@pytest.fixture
def scraped(prometheus: Prometheus, start_server: StartServer, sqlite_url: str, tmp_path: Path) -> Iterator[Prometheus]:
    with observed_release(start_server, prometheus, ALERTS, database_url=sqlite_url, folder=tmp_path):
        yield prometheus


def test_every_query_returns_samples(scraped: Prometheus) -> None:
    panels = [panel for dashboard in DASHBOARDS for row in dashboard.rows for panel in row.panels]
    queries = {(panel.title, filled_in(query.expr, NAMESPACE)) for panel in panels for query in panel.queries}
    empty = wait_for(
        lambda: [(title, expr) for title, expr in queries if not scraped.query(expr)],
        lambda found: found == [],
        what="samples of every query",
        timeout_s=60.0,
    )
    assert empty == []

    jobs = {sample.labels["training_job"] for sample in scraped.query("fleetwright_faults_agents")}
    assert jobs == {"llm-7b"}

    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    pending = {rule["alert"] for rule in rules if "alert" in rule and scraped.query(rule["expr"])}
    assert pending == {"FleetwrightPlanNotApplied"}
