"""`make check` fails where an alert, a dashboard or a page names a metric that no process registers."""

from pathlib import Path

import pytest

from scripts.metric_checks import registered_metrics, series, unknown_metrics

MODULE = """
from prometheus_client import Counter, Gauge

ROUNDS = Counter("fleetwright_demo_rounds", "Rounds.")


def _gauge(name: str) -> Gauge:
    return Gauge(f"fleetwright_demo_{name}", "")


DEPTH = _gauge("queue_depth")
"""
TABLE = """
from prometheus_client.core import GaugeMetricFamily

RATIO = "fleetwright_demo_ratio"
GAUGES = (("fleetwright_demo_watts", "Power."), ("fleetwright_demo_hertz", "Clock."))


def collect():
    yield from [GaugeMetricFamily(name, text) for name, text in GAUGES]
    for name, text in ((RATIO, "Share."),):
        yield GaugeMetricFamily(name, text)
"""
ALERTS = "groups: [{name: demo, rules: [{alert: Stopped, expr: 'rate(fleetwright_demo_rounds_total[5m]) == 0'}]}]\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one process that registers two metrics, one alert and one page."""
    for folder in ("deploy", "docs", "helm/fleetwright/files/dashboards"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "deploy" / "metrics.py").write_text(MODULE)
    (tmp_path / "deploy" / "process.py").write_text("from deploy.metrics import DEPTH\n")
    (tmp_path / "README.md").write_text("No metrics.\n")
    (tmp_path / "helm" / "fleetwright" / "README.md").write_text("No metrics.\n")
    (tmp_path / "helm" / "fleetwright" / "files" / "alerts.yaml").write_text(ALERTS)
    (tmp_path / "docs" / "page.md").write_text("Watch `fleetwright_demo_queue_depth`.\n")
    return tmp_path


def unknown(project: Path) -> list[tuple[str, int, str]]:
    """The mentioned metrics that no process registers."""
    return [(path.name, line, name) for path, line, name in unknown_metrics(project)]


def test_literals_and_wrapped_names_are_registered(project: Path) -> None:
    assert registered_metrics(project) == {
        "fleetwright_demo_rounds": "Counter",
        "fleetwright_demo_queue_depth": "Gauge",
    }
    assert unknown(project) == []


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [("Counter", "_total"), ("Gauge", ""), ("Histogram", "_bucket"), ("Histogram", "_count"), ("Histogram", "_sum")],
)
def test_a_suffix_of_the_exposition_belongs_to_its_family(kind: str, suffix: str) -> None:
    assert f"fleetwright_demo_wait_seconds{suffix}" in set(series({"fleetwright_demo_wait_seconds": kind}))


@pytest.mark.parametrize(
    "name", ["fleetwright_demo_queue_depth_total", "fleetwright_demo_rounds", "fleetwright_demo_rounds_bucket"]
)
def test_a_suffix_of_another_type_is_reported(project: Path, name: str) -> None:
    (project / "helm" / "fleetwright" / "files" / "dashboards" / "demo.json").write_text(f'{{"expr": "{name}"}}')
    assert unknown(project) == [("demo.json", 1, name)]


def test_a_literal_of_a_consumer_registers_nothing(project: Path) -> None:
    (project / "deploy" / "metrics.py").write_text('READ = ("fleetwright_demo_missing", "fleetwright_demo_rounds")\n')
    assert registered_metrics(project) == {}


def test_a_table_of_names_is_registered(project: Path) -> None:
    (project / "deploy" / "metrics.py").write_text(TABLE)
    assert registered_metrics(project) == dict.fromkeys(
        ("fleetwright_demo_watts", "fleetwright_demo_hertz", "fleetwright_demo_ratio"), "Gauge"
    )


def test_an_unknown_name_on_a_page_is_reported_with_its_line(project: Path) -> None:
    (project / "docs" / "page.md").write_text("One\nfleetwright_demo_missing\n")
    assert unknown(project) == [("page.md", 2, "fleetwright_demo_missing")]


def test_an_unknown_name_in_a_dashboard_is_reported(project: Path) -> None:
    folder = project / "helm" / "fleetwright" / "files" / "dashboards"
    (folder / "demo.json").write_text('{"expr": "sum(fleetwright_demo_missing_bucket)"}')
    assert unknown(project) == [("demo.json", 1, "fleetwright_demo_missing_bucket")]


def test_a_module_that_no_process_imports_registers_nothing(project: Path) -> None:
    (project / "deploy" / "process.py").write_text("")
    assert [name for _, _, name in unknown(project)] == [
        "fleetwright_demo_rounds_total",
        "fleetwright_demo_queue_depth",
    ]


def test_a_recording_rule_defines_its_name(project: Path) -> None:
    alerts = project / "helm" / "fleetwright" / "files" / "alerts.yaml"
    alerts.write_text("record: fleetwright_demo_ratio\nexpr: fleetwright_demo_ratio > 1\n")
    assert unknown(project) == []
