"""Tests that the dashboards are current, laid out, and query only exported metrics."""

import itertools
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from api.jobs.metrics import JobMetrics
from api.jobs.process_metrics import ProcessMetrics
from api.schemas.applications import RayServeApplication
from api.schemas.expert_maps import ExpertMapPhase, ExpertMapStatus
from api.schemas.health_events import DeliveryState, OutletName
from api.schemas.planning_loops import LoopPhase
from api.schemas.power import PowerBudget
from api.schemas.remediation import RemediationStage
from api.schemas.targets import Mode, Phase, Target, TargetSpec, TargetStatus
from api.schemas.wanted import WantedCounts
from api.server.fault_metrics import ActiveFault, FaultState
from api.server.metrics import FleetState, ReportedTarget, ServiceMetrics, render_state
from api.server.planning_loop_metrics import ReportedLoop
from api.server.power_metrics import PowerState
from api.server.remediation_metrics import CaseMark
from api.server.target_costs import ReplicaPrice
from api.store import Failure, Store
from deploy.controller.metrics import ControllerMetrics
from deploy.fault_monitor.metrics import MonitorMetrics
from deploy.health_events.metrics import ForwarderMetrics
from deploy.kueue_power.metrics import PowerCheckMetrics
from deploy.node_discovery.metrics import StockMetrics
from deploy.planning_loop.metrics import PlanningMetrics
from deploy.remediation.metrics import RemediationMetrics
from faults.diagnosis import Diagnosis, FaultClass
from faults.quarantine import Decision, DecisionKind, NodeState, QuarantineState
from faults.quarantine.states import NodeRecord
from fleet.stock import Stock
from scripts.dashboards import __main__ as command
from scripts.dashboards.grafana import GRID_COLUMNS, Dashboard, Variable
from scripts.dashboards.not_shown import NOT_SHOWN
from tests.helm.chart import ALERTS
from tests.helm.loop_reports import loop_spec, loop_status
from tests.helm.power_row import agent_page, guard_page, router_page
from tests.helm.power_trees import cap_plan
from tests.testbed.fault_bundles import node_diagnosis

NOW = datetime(2026, 11, 21, tzinfo=UTC)
PRICE = ReplicaPrice("chat", "H100", gpus_per_replica=1, count=2, usd_per_h=3.0)
SELECTOR = re.compile(r"(?P<metric>(?:\w+:)?fleetwright_[\w:]+)(?:\{(?P<matchers>[^}]*)\})?")
OF_PROMETHEUS = {"namespace", "instance"}
MATCHER = re.compile(r"(\w+)\s*[=!]~?")

dashboards = pytest.mark.parametrize("dashboard", command.DASHBOARDS, ids=lambda each: str(each.uid))


def test_the_committed_files_are_up_to_date() -> None:
    assert command.stale() == []
    assert command.main(["--check"]) == 0


def test_changed_and_superfluous_files_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    assert command.main([]) == 0
    assert command.main(["--check"]) == 0
    written, *_ = sorted(tmp_path.iterdir())
    written.write_text(written.read_text().replace("Now", "Then"))
    (tmp_path / "other.json").write_text("{}")
    assert command.main(["--check"]) == 1
    assert re.findall(r"(\S+) is out of date", capsys.readouterr().err) == [written.name, "other.json"]


@dashboards
def test_panels_do_not_overlap_on_the_grid(dashboard: Dashboard) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard.to_json()["panels"]:
        cells = set(_cells(panel["gridPos"]))
        assert not taken & cells, panel["title"]
        assert all(x < GRID_COLUMNS for x, _ in cells), panel["title"]
        taken |= cells


@dashboards
def test_panels_have_unique_ids_and_descriptions(dashboard: Dashboard) -> None:
    panels = dashboard.to_json()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["description"].endswith(".") for panel in panels if panel["type"] != "row")


@dashboards
def test_every_value_of_a_state_has_a_label(dashboard: Dashboard) -> None:
    """The query numbers the states; the panel must label each number."""
    timelines = [panel for row in dashboard.rows for panel in row.panels if panel.kind == "state-timeline"]
    for panel in timelines:
        (query,) = panel.queries
        numbers = [int(number) for number in re.findall(r"\* (\d+)", query.expr)]
        assert numbers == [meaning.value for meaning in panel.meanings]
        assert re.findall(r'"([\w-]+)"\} == 1', query.expr) == [meaning.text for meaning in panel.meanings]


@dashboards
def test_queries_use_only_exported_metrics(dashboard: Dashboard) -> None:
    for query in dashboard.queries():
        _assert_exported(query.expr)
    for variable in dashboard.variables:
        if isinstance(variable, Variable):
            _assert_exported(variable.query)


def test_alerts_use_only_exported_metrics() -> None:
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            _assert_exported(rule["expr"])


def test_the_dashboards_show_every_exported_metric() -> None:
    queries = itertools.chain.from_iterable(dashboard.queries() for dashboard in command.DASHBOARDS)
    queried = {match["metric"] for query in queries for match in SELECTOR.finditer(query.expr)}
    left_out = {
        name
        for name in _exported()
        if name.startswith("fleetwright_")
        and not name.endswith(("_created", "_sum", "_count"))
        and name not in queried
    }  # fmt: skip
    assert left_out == NOT_SHOWN.keys()


@dashboards
def test_boards_link_to_each_other_and_panels_to_the_console(dashboard: Dashboard) -> None:
    page = dashboard.to_json()
    assert page["links"][0]["tags"] == page["tags"]
    assert "console" in {variable["name"] for variable in page["templating"]["list"]}
    for panel in page["panels"]:
        for link in panel.get("fieldConfig", {}).get("defaults", {}).get("links", []):
            assert re.match(r"\$\{console\}/#/(targets/|plans/|health|power)", link["url"])


def test_a_negative_headroom_is_red() -> None:
    panels = [panel for dashboard in command.DASHBOARDS for panel in dashboard.to_json()["panels"]]
    (panel,) = (panel for panel in panels if panel["title"] == "Headroom in servers")
    assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"] == [
        {"value": None, "color": "red"},
        {"value": 1, "color": "green"},
    ]


def _assert_exported(expression: str) -> None:
    exported = _exported()
    found = list(SELECTOR.finditer(expression))
    assert found, expression
    for match in found:
        assert match["metric"] in exported, expression
        labels = set(MATCHER.findall(match["matchers"] or "")) - OF_PROMETHEUS
        assert labels <= exported[match["metric"]], expression


@cache
def _exported() -> dict[str, set[str]]:
    """Return the labels of every series that each process exports once it has done something."""
    service, registry = ServiceMetrics(), CollectorRegistry()
    service.observe_request(method="GET", route="/v1/gpus", status=200, duration_s=0.01)
    service.observe_refusal("slow-head")
    service.observe_database_failure(Failure.UNAVAILABLE)
    service.observe_removed({"jobs": 1})
    service.observe_garbage_collection("ok")
    ProcessMetrics(service.registry, Store("sqlite+aiosqlite:///fleetwright.db"))  # which no one opens
    jobs = JobMetrics(registry)
    jobs.observe_start(lane="work", wait_s=0.1)
    jobs.observe_end(kind="plan", lane="work", outcome="succeeded", run_s=1.0, cpu_s=1.0)
    jobs.observe_lost_worker()
    jobs.observe_result("plan", {"status": "optimal", "solve_s": 0.1})
    jobs.observe_result("placement", {"imbalance": 1.01, "bound": 1.0, "holds": True, "solve_s": 0.1})
    jobs.observe_result("power plan", {"status": "optimal", "solve_s": 0.1})
    jobs.observe_result("power simulation", {"policy": "ladder", "brakes": 0, "run_s": 10.0})
    diagnosis = Diagnosis.model_validate(node_diagnosis("gpu-1")["diagnosis"])
    service.faults.observe_report(diagnosis)
    service.faults.observe_decisions([Decision(DecisionKind.REFUSE, "gpu-1", "budget: two are out")])
    monitor = MonitorMetrics(registry, job="llm")
    monitor.count_batch(observations=8, malformed=0, size_bytes=100)
    monitor.count_refusal("base")
    monitor.count_diagnosis(diagnosis, new=True, isolates=diagnosis.isolate)
    monitor.count_report("kept")
    monitor.observe_evaluation(0.01, active=1)
    monitor.set_agents(known=8, lost=0, skew_s=0.001)
    monitor.set_probers(known=8, lost=0)
    controller = ControllerMetrics(registry)
    PlanningMetrics(registry).decided(LoopPhase.APPLIED, duration_s=1.0)
    controller.count_reconcile(ok=True, duration_s=0.1, at=NOW)
    controller.wrote(target="chat", kind="scale")
    controller.set_leader_source(lambda: True)
    RemediationMetrics(registry).count_reconcile(ok=True, duration_s=0.1, at=NOW)
    power_check = PowerCheckMetrics(registry)
    power_check.count_reconcile(ok=True, duration_s=0.1, at=NOW)
    power_check.set_rows({"row-a": 2800.0}, {"row-a": 9000.0})
    stock = Stock(observed_at=NOW, stale_after_s=300.0, source="nodes")
    StockMetrics(registry, stock="prod", now=lambda: NOW, holds=lambda: True).set_published(stock)
    forwarder = ForwarderMetrics(registry, outlets=[OutletName.SLURM])
    forwarder.count_reconcile(ok=True, duration_s=0.1, at=NOW)
    forwarder.set_components({(OutletName.SLURM, DeliveryState.DELIVERED): 1})
    pages = (
        service.render()
        + render_state(_state())
        + generate_latest(registry)
        + guard_page()
        + router_page()
        + agent_page()
    )
    families = text_string_to_metric_families(pages.decode())
    samples = itertools.chain.from_iterable(family.samples for family in families)
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    recorded = {rule["record"]: _labels_of(rule) for rule in rules if "record" in rule}
    return {sample.name: set(sample.labels) for sample in samples} | recorded


def _labels_of(rule: dict[str, Any]) -> set[str]:
    """Return the labels of a record: those that it adds, and those of its level, the first part of its name."""
    return set(rule.get("labels", {})) | set(rule["record"].split(":")[0].split("_"))


def _state() -> FleetState:
    application = RayServeApplication.model_validate(
        {"dashboard_url": "http://ray.invalid:8265", "application": "chat", "deployments": {"H100": "h100"}}
    )
    spec = TargetSpec(workload="chat", application=application, mode=Mode.RECOMMEND, plan_id="plan")
    target = Target(name="chat", version=1, spec=spec)
    wanted = WantedCounts(plan_id="plan", at=NOW, replicas={"H100": 2})
    status = TargetStatus(
        phase=Phase.OBSERVED,
        observed_at=NOW,
        planned={"H100": 2},
        applied={"H100": 2},
        wanted=wanted,
        expert_maps={"H100": ExpertMapStatus(placement_id="p", phase=ExpertMapPhase.LOADED, loaded=2)},
    )
    reported = ReportedTarget(target=target, status=status, reported_at=NOW, prices=[PRICE])
    budget = PowerBudget(limit_w=9000.0, expires_at=NOW + timedelta(minutes=3))
    power = PowerState(budgets=[("row-a", budget)], plan=cap_plan(), guarded_rows=["row-a"])
    active = ActiveFault(fault=FaultClass.CRASH, scope="node", since=NOW, node="gpu-1")
    out = NodeRecord(state=NodeState.QUARANTINED, since_s=0.0)
    faults = FaultState(active=[active], evaluated_at=NOW, fleet=20, state=QuarantineState(nodes={"gpu-2": out}))
    loop = loop_status(at=NOW)
    return FleetState(
        at=NOW,
        database_up=True,
        targets=[reported],
        planning_loops=[ReportedLoop(name="chat", status=loop, reported_at=NOW, spec=loop_spec())],
        document_versions=[("gpus", 1)],
        power=power,
        faults=faults,
        remediation=[CaseMark(NodeState.QUARANTINED, RemediationStage.DRAINING, NOW, None)],
    )


def _cells(position: dict[str, Any]) -> Iterator[tuple[int, int]]:
    x, y = position["x"], position["y"]
    return itertools.product(range(x, x + position["w"]), range(y, y + position["h"]))
