"""Runs every query of dashboards and alerts on a real Prometheus that scrapes the real service, controller, guard and
fault monitor.

The metrics of a router before scripted engines, and of controllers that need a Ray cluster to act, are served by this
process.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry

from api.cli.common.metrics_port import served_metrics
from api.client import GPUS, Client, UnauthorizedError
from api.schemas.faults import DiagnosisReport
from api.schemas.health_events import DeliveryState, OutletName
from api.schemas.planning_loops import LoopPhase, PlanningLoopSpec, PlanningLoopStatus
from api.schemas.power import CapPlanRequest, PowerBudget, SimulationRequest
from api.schemas.quarantine import Evaluation
from api.schemas.targets import Mode, Phase, TargetSpec, TargetStatus
from api.schemas.wanted import WantedCounts
from api.server.examples import bodies
from deploy.controller.metrics import ControllerMetrics
from deploy.health_events.metrics import ForwarderMetrics
from deploy.planning_loop.metrics import PlanningMetrics
from deploy.remediation.metrics import RemediationMetrics
from fleet.sizes.histogram import SizeBuckets
from placement.request import PlacementRequest
from planner.request import GivenOption, PlanRequest, Workload
from scripts.dashboards.__main__ import DASHBOARDS
from tests.deploy.power_guard.row_of_agents import agent_row
from tests.helm.chart import ALERTS
from tests.helm.power_row import router
from tests.power.trees import two_rows
from tests.testbed.fault_bundles import node_diagnosis, report
from tests.testbed.processes import LOOPBACK, Process, answers_ok, free_ports
from tests.testbed.prometheus import Prometheus
from tests.testbed.server import Server, StartServer

pytestmark = pytest.mark.prometheus

# The values that Grafana substitutes, if Prometheus sets no namespace.
VARIABLES = {"$namespace": "", "$target": ".*", "$row": ".*", "$job": ".*", "$__rate_interval": "1m", "$__range": "1h"}
WITHOUT_SAMPLES = {"Forecast coverage"}  # its first sample would take 40 s
SCRAPED_EVERY = "2s"  # a scrape that takes longer makes every gauge of its process stale until the next one

SLOWER = {"rating_w": 60_000.0, "period_s": 2.0}  # forecasts are 20 periods ahead: 40 s


@pytest.fixture
def scraped(prometheus: Prometheus, start_server: StartServer, sqlite_url: str, tmp_path: Path) -> Iterator[Prometheus]:
    """Provide Prometheus after a few scrapes of a service and a controller that have each done something."""
    server = start_server(sqlite_url, "--no-controller")
    controller_address = f"{LOOPBACK}:{free_ports(1)[0]}"
    guard_address, router_address, ray_address = (f"{LOOPBACK}:{port}" for port in free_ports(3))
    with ExitStack() as running:
        running.enter_context(_controller(server, controller_address, tmp_path))
        running.enter_context(_guard(server, guard_address, tmp_path))
        running.enter_context(router(LOOPBACK, int(router_address.split(":")[1])))
        running.enter_context(_controllers_on_ray(ray_address))
        client = running.enter_context(server.client())
        _use(client)
        with Client(server.url) as stranger, pytest.raises(UnauthorizedError):
            stranger.get_freeze()
        addresses = {"api": server.url.removeprefix("http://"), "controller": controller_address}
        monitor_address = f"{LOOPBACK}:{free_ports(1)[0]}"
        running.enter_context(_monitor(monitor_address, tmp_path))
        addresses |= {"fault-monitor": monitor_address}
        addresses |= {"guard": guard_address, "router": router_address, "on-ray": ray_address}
        prometheus.configure(
            {
                "global": {
                    "scrape_interval": SCRAPED_EVERY,
                    "scrape_timeout": SCRAPED_EVERY,
                    "evaluation_interval": SCRAPED_EVERY,
                },
                "rule_files": [str(_rules(tmp_path))],
                "scrape_configs": [
                    {"job_name": job, "static_configs": [{"targets": [address]}]} for job, address in addresses.items()
                ],
            }
        )
        for counter in (
            "fleetwright_plans_total",
            "fleetwright_controller_reconciles_total",
            "fleetwright_guard_events_total",
            "fleetwright_remediation_reconciles_total",
            "fleetwright_router_admission_wait_seconds_count",
            'fleetwright_power_budget_remaining_seconds{row="row-1"}',
        ):
            prometheus.wait_for_samples(f"rate({counter}[1m])")  # has been scraped twice
        for objective in ("availability", "read-latency"):  # recorded by the rules, after that
            prometheus.wait_for_samples(f'namespace:fleetwright_slo_errors:ratio_rate3d{{slo="{objective}"}}')
        yield prometheus


def _rules(directory: Path) -> Path:
    """Return the rules with intervals that fit to a short test."""
    rules = yaml.safe_load(ALERTS.read_text())
    for group in rules["groups"]:
        group["interval"] = SCRAPED_EVERY
    file = directory / "rules.yaml"
    file.write_text(yaml.safe_dump(rules))
    return file


def test_every_query_returns_samples(scraped: Prometheus) -> None:
    empty = set()
    for panel in (panel for dashboard in DASHBOARDS for row in dashboard.rows for panel in row.panels):
        for query in panel.queries:
            if not scraped.query(_filled_in(query.expr)):
                empty.add(panel.title)
    assert empty == WITHOUT_SAMPLES

    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    pending = {rule["alert"] for rule in rules if "alert" in rule and scraped.query(rule["expr"])}
    assert pending == {"FleetwrightPlanNotApplied"}


def _controller(server: Server, address: str, directory: Path) -> Process:
    """Start a controller that has completed its first reconcile, without targets, and waits before its second."""
    host, port = address.split(":")
    arguments = ["--url", server.url, "--token-file", str(directory / "token"), "--period-s", "3600"]
    process = Process.start(
        [
            sys.executable,
            "-m",
            "api.cli",
            "controller",
            "run",
            *arguments,
            "--metrics-host",
            host,
            "--metrics-port",
            port,
        ],
        name="controller",
        log_dir=directory,
        env={"PATH": os.environ["PATH"]},
    )
    process.wait_ready(lambda: answers_ok(f"http://{address}/metrics"))
    return process


@contextmanager
def _guard(server: Server, address: str, directory: Path) -> Iterator[None]:
    """Run a guard over two agents that fetches its budget from the service."""
    host, port = address.split(":")
    budgets = {"url": server.url, "token_file": directory / "token", "every_s": 0.5}
    with agent_row(2) as row:
        file = directory / "guard.json"
        config = row.config(row="row-1", settings=SLOWER, lease_s=4.0, budgets_from=budgets)
        file.write_text(config.model_dump_json(exclude_defaults=True))
        arguments = ["--config", str(file), "--host", host, "--port", port]
        process = Process.start(
            [sys.executable, "-m", "api.cli", "guard", *arguments],
            name="guard",
            log_dir=directory,
            env={"PATH": os.environ["PATH"]},
        )
        with process:
            process.wait_ready(lambda: answers_ok(f"http://{address}/healthz"))
            yield


@contextmanager
def _controllers_on_ray(address: str) -> Iterator[None]:
    """Serve the metrics of a remediation controller and of a forwarder after one reconcile, and of a controller."""
    host, port = address.split(":")
    registry, now = CollectorRegistry(), datetime.now(UTC)
    RemediationMetrics(registry).count_reconcile(ok=True, duration_s=0.1, at=now)
    forwarder = ForwarderMetrics(registry, outlets=[OutletName.SLURM])
    forwarder.count_reconcile(ok=True, duration_s=0.1, at=now)
    forwarder.set_components({(OutletName.SLURM, DeliveryState.DELIVERED): 1})
    ControllerMetrics(registry).wrote(target="chat", kind="scale")
    PlanningMetrics(registry).decided(LoopPhase.APPLIED, duration_s=1.0)
    with served_metrics(host, int(port), registry):
        yield


def _monitor(address: str, directory: Path) -> Process:
    """Start a fault monitor of a job without recorders."""
    host, port = address.split(":")
    file = directory / "job.yaml"
    file.write_text("{name: llm, nodes: 4}")
    arguments = ["-m", "api.cli", "faults", "monitor", str(file), "--host", host, "--port", port]
    process = Process.start(
        [sys.executable, *arguments], name="fault-monitor", log_dir=directory, env={"PATH": os.environ["PATH"]}
    )
    process.wait_ready(lambda: answers_ok(f"http://{address}/metrics"))
    return process


def _use(client: Client) -> None:
    gpu = client.get_document(GPUS).document.gpus[0].name
    plan = client.create_plan(_request(gpu))
    client.create_placement(PlacementRequest(loads=((4.0, 2.0, 1.0, 1.0),), slots=6, gpus=2, nodes=1))
    spec = TargetSpec.model_validate(
        {
            "workload": "chat",
            "mode": Mode.RECOMMEND,
            "plan_id": plan.id,
            "application": {
                "dashboard_url": f"http://{LOOPBACK}:8265",
                "application": "chat",
                "deployments": {gpu: "chat"},
            },
            "demand": bodies()["put_target"]["demand"],
        }
    )
    client.create_target("chat", spec)
    now = datetime.now(UTC)
    wanted = WantedCounts(plan_id=plan.id, at=now, replicas={gpu: 3})
    status = TargetStatus(phase=Phase.APPLYING, observed_at=now, planned={gpu: 3}, applied={gpu: 2}, wanted=wanted)
    client.report_target_status("chat", status)
    loop = PlanningLoopSpec(request=_request(gpu), targets={"chat": "chat"})
    client.create_planning_loop("chat", loop)
    client.report_planning_loop_status("chat", _loop_status())
    tree = two_rows(pdu_w=67_500.0, row_w=60_000.0)
    client.create_power_plan(CapPlanRequest(tree=tree))
    client.create_power_tree(tree)
    until = datetime.now(UTC) + timedelta(minutes=30)
    client.create_power_budget("row-1", PowerBudget(limit_w=30_000.0, expires_at=until))
    client.create_power_simulation(SimulationRequest(servers=8, budget_servers=8, days=0.1))
    _diagnose(client)


def _diagnose(client: Client) -> None:
    """Store a dry run that quarantines one node and refuses another by a guardrail."""
    kept = client.report_diagnosis(DiagnosisReport.model_validate(report()))
    client.replay_diagnosis_bundle(kept.id)
    client.report_diagnosis(DiagnosisReport.model_validate(node_diagnosis("gpu-1")))
    client.report_diagnosis(DiagnosisReport.model_validate(node_diagnosis("gpu-2", confidence=0.1)))
    members: dict[str, dict[str, str]] = {f"gpu-{index}": {} for index in range(40)}
    client.evaluate_quarantine(Evaluation.model_validate({"members": members, "spares": {"default": 1}}))


def _loop_status() -> PlanningLoopStatus:
    example = bodies()["put_planning_loop_status"]
    return PlanningLoopStatus.model_validate(example | {"observed_at": datetime.now(UTC).isoformat()})


def _request(gpu: str) -> PlanRequest:
    buckets = SizeBuckets(input_tokens=(1024,), output_tokens=(256,), share=((1.0,),))
    option = GivenOption(name="measured", gpu=gpu, price_usd_per_h=2.0, max_rps=((1.0,),))
    return PlanRequest(workloads=(Workload(name="chat", rate_rps=2.5, buckets=buckets, options=(option,)),))


def _filled_in(expression: str) -> str:
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    return expression
