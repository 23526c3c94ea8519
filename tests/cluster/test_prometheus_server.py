"""Tests Prometheus and promtool: a real scrape, refused configurations, checked rules, no process left."""

import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge, start_http_server

from tests.testbed.nested import run_pytest
from tests.testbed.proc import listening_on, running_with_variable
from tests.testbed.processes import LOOPBACK
from tests.testbed.prometheus import Prometheus, PrometheusError, Promtool, Sample
from tests.testbed.waiting import wait_for

pytestmark = pytest.mark.prometheus

MARK = "FLEETWRIGHT_TEST_MARK"
PLUGINS = ("tests.testbed.requirements", "tests.testbed.prometheus")

RULES = """
groups:
  - name: caps
    rules:
      - alert: CapExceeded
        expr: drawn_watts > cap_watts
        for: 1m
        labels: {severity: page}
"""

RULE_TEST = """
rule_files: [rules.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'drawn_watts{row="r1"}', values: '90 110 110 110'}
      - {series: 'cap_watts{row="r1"}', values: '100 100 100 100'}
    alert_rule_test:
      - eval_time: 3m
        alertname: CapExceeded
        exp_alerts: [{exp_labels: {row: r1, severity: SEVERITY}}]
"""


@pytest.fixture
def exporter() -> Iterator[str]:
    """Serve a page of metrics and return its address."""
    registry = CollectorRegistry()
    Gauge("cap_watts", "Power cap of a row", ["row"], registry=registry).labels(row="r1").set(5600)
    server, thread = start_http_server(0, addr=LOOPBACK, registry=registry)
    yield f"{LOOPBACK}:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def scraping(job: str, target: str) -> dict[str, Any]:
    """Return a configuration that scrapes one target at a short interval."""
    scrape = {"job_name": job, "scrape_interval": "100ms", "scrape_timeout": "100ms"}
    return {"scrape_configs": [scrape | {"static_configs": [{"targets": [target]}]}]}


def test_prometheus_scrapes_the_configured_targets(prometheus: Prometheus, exporter: str) -> None:
    prometheus.configure(scraping("rows", exporter))
    prometheus.wait_until_up("rows")
    (sample,) = prometheus.wait_for_samples("cap_watts")
    expected_labels = {"__name__": "cap_watts", "instance": exporter, "job": "rows", "row": "r1"}
    assert sample == Sample(labels=expected_labels, value=5600)
    assert prometheus.query("sum(cap_watts) / 1000") == [Sample(labels={}, value=5.6)]


def test_a_scalar_is_one_sample_without_labels(prometheus: Prometheus) -> None:
    assert prometheus.query("6 * 7") == [Sample(labels={}, value=42)]


def test_an_unreachable_target_is_down(prometheus: Prometheus) -> None:
    prometheus.configure(scraping("nobody", f"{LOOPBACK}:1"))
    (sample,) = prometheus.wait_for_samples('up{job="nobody"}')
    assert sample.value == 0


def test_an_invalid_query_is_refused_with_the_message_of_the_server(prometheus: Prometheus) -> None:
    with pytest.raises(PrometheusError, match="parse error"):
        prometheus.query("sum(")


def test_an_invalid_configuration_is_refused_and_the_last_one_stays(prometheus: Prometheus, exporter: str) -> None:
    prometheus.configure(scraping("stays", exporter))
    with pytest.raises(PrometheusError, match="not a valid duration"):
        prometheus.configure({"scrape_configs": [{"job_name": "wrong", "scrape_interval": "soon"}]})
    prometheus.wait_until_up("stays")


def test_prometheus_listens_on_loopback_only(prometheus: Prometheus) -> None:
    assert {str(address) for address in listening_on([prometheus.pid])} == {LOOPBACK}


def test_promtool_checks_rules(promtool: Promtool, tmp_path: Path) -> None:
    path = tmp_path / "rules.yml"
    path.write_text(RULES)
    assert "1 rules found" in promtool.check_rules(path)
    path.write_text(RULES.replace("cap_watts", "cap_watts +"))
    with pytest.raises(PrometheusError, match="could not parse expression"):
        promtool.check_rules(path)


def test_promtool_runs_the_unit_tests_of_rules(promtool: Promtool, tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(RULES)
    path = tmp_path / "rules_test.yml"
    path.write_text(RULE_TEST.replace("SEVERITY", "page"))
    assert "SUCCESS" in promtool.test_rules(path)
    path.write_text(RULE_TEST.replace("SEVERITY", "ticket"))
    with pytest.raises(PrometheusError, match="FAILED"):
        promtool.test_rules(path)


def test_promtool_checks_a_page_of_metrics(promtool: Promtool) -> None:
    page = dedent("""\
        # HELP plans_total Plans made.
        # TYPE plans_total counter
        plans_total 3
        """)
    promtool.check_metrics(page)
    with pytest.raises(PrometheusError, match='counter metrics should have "_total" suffix'):
        promtool.check_metrics(page.replace("plans_total", "plans"))


def test_promtool_checks_a_configuration(promtool: Promtool, tmp_path: Path) -> None:
    path = tmp_path / "prometheus.yml"
    path.write_text("scrape_configs: []")
    assert "SUCCESS" in promtool.check_config(path)
    path.write_text("scrape_config: []")
    with pytest.raises(PrometheusError, match="field scrape_config not found"):
        promtool.check_config(path)


def test_no_process_or_file_survives_a_killed_test_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mark = secrets.token_hex()
    monkeypatch.setenv(MARK, mark)
    done = run_pytest(
        """
        import os, signal

        def test_killed(prometheus):
            os.kill(os.getpid(), signal.SIGKILL)
        """,
        folder=tmp_path,
        plugins=PLUGINS,
    )
    assert done.returncode == -signal.SIGKILL
    wait_for(lambda: running_with_variable(MARK, mark), lambda left: not left, what="end of every process")


@pytest.mark.parametrize(("required", "outcome"), [("", "1 skipped"), ("prometheus", "1 error")])
def test_without_prometheus_the_fixture_reports_the_reason(required: str, outcome: str, tmp_path: Path) -> None:
    bare = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    done = run_pytest(
        "def test_needs_it(prometheus, promtool): pass",
        folder=tmp_path,
        plugins=PLUGINS,
        environment=bare | {"FLEETWRIGHT_REQUIRE": required},
    )
    assert outcome in done.stdout
    assert "there is no apt-get on PATH to get the package prometheus with" in done.stdout
