"""Runs every process of Fleetwright on loopback, and a Prometheus that scrapes them with the labels of PodMonitors.

The engines behind the router, the GPUs of the agents and `scontrol` are emulated; each scraped page is of a product
process.
"""

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml
from kubernetes import client

from api.client import GPUS, Client, Timeouts, UnauthorizedError
from api.schemas.expert_maps import ExpertMapPhase, ExpertMapStatus
from api.schemas.faults import DiagnosisReport
from api.schemas.power import CapPlanRequest, PowerBudget, SimulationRequest
from api.schemas.quarantine import Evaluation
from api.schemas.targets import Mode, Phase, TargetSpec, TargetStatus
from api.schemas.wanted import WantedCounts
from api.server.examples import bodies
from deploy.emulator.local_ray import SETTINGS
from deploy.node_agent.schemas import CAPS_PATH
from placement.request import PlacementRequest
from tests.deploy.health_events.fake_scontrol import FakeScontrol
from tests.deploy.router.tables import table
from tests.helm.chart import ALERTS
from tests.helm.loop_reports import loop_request, loop_spec, loop_status
from tests.power.trees import two_rows
from tests.testbed.fault_bundles import node_diagnosis, report
from tests.testbed.gpu_nodes import GpuNodes
from tests.testbed.kube_api import KubeApi
from tests.testbed.kueue import Kueue
from tests.testbed.processes import LOOPBACK, Process, answers_ok, free_ports
from tests.testbed.prometheus import Prometheus, running_prometheus
from tests.testbed.server import ADMIN_TOKEN, Server, StartServer, running_servers
from tests.testbed.waiting import wait_for

NAMESPACE: Final = "fleet"
SCRAPED_EVERY: Final = "3s"  # a scrape that takes longer makes every gauge of its process stale until the next one
PERIOD_S: Final = 2.0  # of the guard; forecasts are 20 periods ahead: 40 s
START_S: Final = 300.0
RAY_PORTS: Final = (
    "dashboard-agent-listen-port",
    "dashboard-agent-grpc-port",
    "runtime-env-agent-port",
    "metrics-export-port",
    "ray-client-server-port",
)
PRIORITIES: Final = ("high", "low")
METRICS: Final = ("--metrics-host", LOOPBACK, "--metrics-port")


@dataclass(kw_only=True)
class Release:
    """The processes of one release, and the address of each process's metrics by component."""

    server: Server
    folder: Path
    running: ExitStack
    addresses: list[tuple[str, str]] = field(default_factory=list)

    def start(self, name: str, *arguments: str | Path, address: str, path: str = "/metrics", **extra: str) -> Process:
        """Start a command of Fleetwright, whose metrics are at this address."""
        argv: list[str | Path] = [sys.executable, "-m", "api.cli", *arguments]
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder)} | extra
        process = Process.start(argv, name=name, log_dir=self.folder, env=environment)
        self.running.callback(process.stop)
        process.wait_ready(lambda: answers_ok(f"http://{address}{path}"), timeout_s=START_S)
        self.addresses.append((name.split(":", maxsplit=1)[0], address))
        return process

    @property
    def of_api(self) -> list[str | Path]:
        return ["--url", self.server.url, "--token-file", self.folder / "token"]


@pytest.fixture(scope="session")
def observed_release(
    prometheus_programs: Path,
    kube_api: KubeApi,
    kube_client: client.ApiClient,
    kueue: Kueue,  # noqa: ARG001 # serves the kinds that the power check reads
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Prometheus]:
    """Provide a Prometheus of its own that scrapes a release, of which each process has done something."""
    nodes = GpuNodes(core=client.CoreV1Api(kube_client), pool="observed")
    nodes.add(2)
    folder = tmp_path_factory.mktemp("release")
    data = folder / "prometheus"
    data.mkdir()
    with (
        running_prometheus(prometheus_programs / "prometheus", directory=data) as prometheus,
        running_servers(folder) as start_server,
        _running_release(start_server, prometheus, folder=folder, kubeconfig=kube_api.kubeconfig_path),
    ):
        yield prometheus
    nodes.remove_all()


@contextmanager
def _running_release(
    start_server: StartServer, prometheus: Prometheus, *, folder: Path, kubeconfig: Path
) -> Iterator[None]:
    server = start_server(f"sqlite+aiosqlite:///{folder}/service.db", "--no-controller")
    with ExitStack() as running:
        release = Release(server=server, folder=folder, running=running)
        release.addresses.append(("api", server.url.removeprefix("http://")))
        patience = Timeouts(read_s=START_S)
        client = running.enter_context(Client(server.url, token=ADMIN_TOKEN, timeouts=patience))
        gpu, plan_id = _store(client)
        _start_remediation(release)  # first, because Ray starts best on an idle machine
        guard = _start_power(release)
        _start_router(release, guard=guard)
        _start_controllers(release, kubeconfig)
        _report(client, gpu, plan_id)
        prometheus.configure(_scraping(release.addresses, _fast(ALERTS, folder)))
        running.enter_context(_traffic(release))
        _wait_until_scraped(prometheus)
        _change(client, server.url)
        yield


def _scraping(addresses: list[tuple[str, str]], rules: Path) -> dict[str, Any]:
    """Return a configuration with the labels that a PodMonitor of the chart gives to each series."""
    every = dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), SCRAPED_EVERY)
    targets = [
        {
            "targets": [address],
            "labels": {
                "namespace": NAMESPACE,
                "job": f"{NAMESPACE}/demo-fleetwright-{component}",
                "pod": f"demo-fleetwright-{component}-{position}",
                "container": component,
                "endpoint": "metrics",
            },
        }
        for position, (component, address) in enumerate(addresses)
    ]
    return {
        "global": every,
        "rule_files": [str(rules)],
        "scrape_configs": [{"job_name": "release", "static_configs": targets}],
    }


def _fast(rules: Path, folder: Path) -> Path:
    """Return the rules with intervals that fit to a short test."""
    document = yaml.safe_load(rules.read_text())
    for group in document["groups"]:
        group["interval"] = SCRAPED_EVERY
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def _wait_until_scraped(prometheus: Prometheus) -> None:
    wait_for(partial(prometheus.query, "min(up) == 1"), what="a scrape of every process", timeout_s=START_S)
    forecast = 'fleetwright_row_power_forecast_watts{horizon="40s", quantile="0.999"}'
    for query in (
        f"{forecast} offset 40s",
        "rate(fleetwright_router_ttft_seconds_count[1m]) > 0",
        "rate(fleetwright_planning_windows_total[1m])",
        'namespace:fleetwright_slo_errors:ratio_rate3d{slo="read-latency"}',
        "fleetwright_remediation_last_reconcile_timestamp_seconds > 0",
        "fleetwright_health_events_last_reconcile_timestamp_seconds > 0",
        "fleetwright_kueue_power_last_reconcile_timestamp_seconds > 0",
    ):
        wait_for(partial(prometheus.query, query), what=query, timeout_s=START_S)


def _start_power(release: Release) -> str:
    """Start two agents, one of which a planner caps, and the guard of their row; return the guard's address."""
    agents = []
    for name in ("n0", "n1"):
        port = free_ports(1)[0]
        address = f"{LOOPBACK}:{port}"
        options = ["--device", "simulated", "--gpus", "4", "--port", str(port)]
        release.start(f"agent:{name}", "agent", name, *options, address=address)
        agents.append({"name": name, "url": f"http://{address}", "duty": "high" if name == "n0" else "low"})
    cap = {"holder": "planner", "lease_s": 3600.0, "power_limit_w": 500.0, "clock_mhz": 1500}
    httpx.put(f"{agents[0]['url']}{CAPS_PATH}", json=cap, trust_env=False).raise_for_status()
    settings = {"rating_w": 40_000.0, "telemetry_delay_s": 0.0, "period_s": PERIOD_S, "margin_s": 2 * PERIOD_S}
    config = {
        "row": "row-1",
        "settings": settings | {"silent_after_s": 20 * PERIOD_S},
        "agents": agents,
        "mode": "apply",
        "lease_s": 3 * PERIOD_S,
        "budgets_from": {"url": release.server.url, "token_file": str(release.folder / "token"), "every_s": 0.5},
    }
    file = release.folder / "guard.json"
    file.write_text(json.dumps(config))
    port = free_ports(1)[0]
    address = f"{LOOPBACK}:{port}"
    options = ["--config", str(file), "--host", LOOPBACK, "--port", str(port)]
    release.start("guard", "guard", *options, address=address, path="/healthz")
    return address


def _start_router(release: Release, *, guard: str) -> None:
    """Start a router before one emulated engine."""
    engine, port, metrics_port = free_ports(3)
    emulator = ["-m", "deploy.emulator.openai_server", "--gpu", "H100-SXM", "--time-scale", "20", "--port", str(engine)]
    process = Process.start([sys.executable, *emulator], name="engine", log_dir=release.folder)
    release.running.callback(process.stop)
    process.wait_ready(lambda: answers_ok(f"http://{LOOPBACK}:{engine}/health"))
    (release.folder / "table.json").write_text(table(weights={"a": 1.0}).model_dump_json())
    config = {
        "engines": {"a": [f"http://{LOOPBACK}:{engine}"]},
        "table_file": str(release.folder / "table.json"),
        "watts": {"url": f"http://{guard}", "row": "row-1", "step_w": 100.0, "patience_s": 1.0},
    }
    file = release.folder / "router.json"
    file.write_text(json.dumps(config))
    options = ["--config", str(file), "--port", str(port), "--metrics-port", str(metrics_port)]
    release.start("router", "router", *options, address=f"{LOOPBACK}:{metrics_port}")
    (release.folder / "router.url").write_text(f"http://{LOOPBACK}:{port}")


def _start_remediation(release: Release) -> None:
    """Start a remediation controller on its own Ray.

    Ray waits 15 seconds for each of its agents to write a port that it may choose, and then ends.  Here the ports are
    given, because an agent takes longer to start on a loaded machine.
    """
    ports = dict(zip(("port", *RAY_PORTS), free_ports(1 + len(RAY_PORTS)), strict=True))
    argv: list[str | Path] = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    argv += ["--node-ip-address", LOOPBACK, "--include-dashboard", "false", "--num-cpus", "1"]
    argv += ["--min-worker-port", "0", "--max-worker-port", "0"]  # any: else those below 20000, which may be in use
    argv += [f"--{name}={port}" for name, port in ports.items()]
    environment = {"PATH": os.environ["PATH"], "HOME": str(release.folder)} | SETTINGS
    ray = Process.start(argv, name="ray", log_dir=release.folder, env=environment)
    release.running.callback(ray.stop)
    ray.wait_ready(lambda: "Ray runtime started." in ray.log_path.read_text(), timeout_s=START_S)
    address = f"{LOOPBACK}:{free_ports(1)[0]}"
    options = ["--address", f"{LOOPBACK}:{ports['port']}", "--no-monitor", *METRICS, address.split(":")[1]]
    release.start("remediation", "remediate", "run", *release.of_api, *options, address=address, **SETTINGS)


def _start_controllers(release: Release, kubeconfig: Path) -> None:
    """Start the controller, the power check of Kueue, a fault monitor and a forwarder to Slurm."""
    controller, power_check, monitor, forwarder = (f"{LOOPBACK}:{port}" for port in free_ports(4))
    of_api = release.of_api
    of_cluster: list[str | Path] = ["--kubeconfig", kubeconfig]
    # The controller reconciles once, so that it does not replace what `_report` reports; the stock ages meanwhile.
    options = ["--period-s", "3600", "--publish-stock", "prod", "--stock-stale-after-s", "86400", *METRICS]
    release.start(
        "controller", "controller", "run", *of_api, *of_cluster, *options, controller.split(":")[1], address=controller
    )
    reconciled = "fleetwright_controller_reconcile_duration_seconds_count 1.0"
    wait_for(
        lambda: reconciled in httpx.get(f"http://{controller}/metrics", trust_env=False).text,
        what="the reconcile of the controller",
        timeout_s=START_S,
    )
    rows = release.folder / "power-check.json"
    rows.write_text(json.dumps({"tree": "hall", "rows": ["row-1", "row-2"]}))
    options = ["--config", str(rows), *METRICS, power_check.split(":")[1]]
    release.start("kueue-power", "power", "admission-check", *of_api, *of_cluster, *options, address=power_check)
    job = release.folder / "job.yaml"
    job.write_text("{name: llm-7b, nodes: 4}")
    options = ["--host", LOOPBACK, "--port", monitor.split(":")[1]]
    release.start("fault-monitor", "faults", "monitor", job, *options, address=monitor)
    slurm = FakeScontrol(release.folder)
    slurm.write("gpu-1 gpu-2")
    options = ["--slurm", "--scontrol", str(slurm.command), "--nodes-from", "slurm", *METRICS, forwarder.split(":")[1]]
    release.start("forwarder", "faults", "forward", *of_api, *options, address=forwarder)


@contextmanager
def _traffic(release: Release) -> Iterator[None]:
    """Send streams of both priorities all the time."""
    ending = threading.Event()
    url = f"{(release.folder / 'router.url').read_text()}/v1/chat/completions"
    body = {"model": "m", "messages": [{"role": "user", "content": "hi " * 50}], "max_tokens": 40, "stream": True}

    def send(priority: str) -> None:
        with httpx.Client(trust_env=False, timeout=60.0) as http:
            while not ending.wait(0.3):
                http.post(url, json=body, headers={"x-fleetwright-priority": priority})

    users = [threading.Thread(target=send, args=(priority,)) for priority in PRIORITIES]
    for user in users:
        user.start()
    try:
        yield
    finally:
        ending.set()
        for user in users:
            user.join(60.0)


def _store(client: Client) -> tuple[str, str]:
    """Store a plan, its target, and a power tree with a budget; return the GPU and the plan."""
    gpu = client.get_document(GPUS).document.gpus[0].name
    plan = client.create_plan(loop_request(gpu))
    dashboard = f"http://{LOOPBACK}:{free_ports(1)[0]}"  # which refuses: the controller reports a failure
    application = {"dashboard_url": dashboard, "application": "chat", "deployments": {gpu: "chat"}}
    spec = {"workload": "chat", "mode": Mode.RECOMMEND, "plan_id": plan.id, "application": application}
    client.create_target("chat", TargetSpec.model_validate(spec | {"demand": bodies()["put_target"]["demand"]}))
    client.create_power_tree(two_rows(pdu_w=67_500.0, row_w=60_000.0))
    until = datetime.now(UTC) + timedelta(minutes=30)
    client.create_power_budget("row-1", PowerBudget(limit_w=30_000.0, expires_at=until))
    return gpu, plan.id


def _report(client: Client, gpu: str, plan_id: str) -> None:
    """Report on the target and its planning loop, as a controller does."""
    now = datetime.now(UTC)
    maps = {gpu: ExpertMapStatus(placement_id="p", phase=ExpertMapPhase.ROLLING, replicas=2, loaded=1, waiting=1)}
    status = TargetStatus(
        phase=Phase.APPLYING,
        observed_at=now,
        plan_id=plan_id,
        planned={gpu: 3},
        applied={gpu: 2},
        wanted=WantedCounts(plan_id=plan_id, at=now, replicas={gpu: 3}),
        expert_maps=maps,
    )
    client.report_target_status("chat", status)
    client.create_planning_loop("chat", loop_spec(gpu))
    client.report_planning_loop_status("chat", loop_status(at=now, gpu=gpu))


def _change(client: Client, server_url: str) -> None:
    """Do what counters count, after their first scrape."""
    gpu = client.get_document(GPUS).document.gpus[0].name
    client.create_plan(loop_request(gpu).model_copy(update={"time_limit_s": 5.0}))
    client.create_placement(PlacementRequest(loads=((4.0, 2.0, 1.0, 1.0),), slots=6, gpus=2, nodes=1))
    client.create_power_plan(CapPlanRequest(tree=two_rows(pdu_w=67_500.0, row_w=60_000.0)))
    client.create_power_simulation(SimulationRequest(servers=8, budget_servers=8, days=0.1))
    kept = client.report_diagnosis(DiagnosisReport.model_validate(report()))
    client.replay_diagnosis_bundle(kept.id)
    client.report_diagnosis(DiagnosisReport.model_validate(node_diagnosis("gpu-1")))
    client.report_diagnosis(DiagnosisReport.model_validate(node_diagnosis("gpu-2", confidence=0.1)))
    members: dict[str, dict[str, str]] = {f"gpu-{index}": {} for index in range(40)}
    client.evaluate_quarantine(Evaluation.model_validate({"members": members, "spares": {"default": 1}}))
    with Client(server_url) as stranger, pytest.raises(UnauthorizedError):
        stranger.get_freeze()
