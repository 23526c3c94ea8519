"""A planning loop on real parts: emulated engines, Prometheus, the service, and controllers as processes.

An autoscaler of the test's own sets the fleet to the wanted counts, as KEDA or an HPA would.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from api.client import Client, NotFoundError
from api.schemas.planning_loops import LoopPhase, PlanningLoopSpec, PlanningLoopStatus
from api.schemas.targets import TargetSpec
from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from fleet.slo import Slo
from fleet.traces import Trace
from planner.performance import ReplicaConfig, highest_rates
from planner.request import PlanRequest
from tests.testbed.engine_fleet import EngineFleet, scraped_fleet
from tests.testbed.processes import Process
from tests.testbed.prometheus import Prometheus, prometheus_process
from tests.testbed.server import ROOT, Server, StartServer
from tests.testbed.waiting import wait_for

SCALE = 4.0  # model seconds per second
WINDOW_S = 5.0  # of this machine
GPU, OPTION = "L4", "l4"
INPUT_EDGES, OUTPUT_EDGES = (150, 300, 450, 600, 900, 1200, 1800), (50,)
SLO = Slo.model_validate({"ttft_ms": {"p95": 2_000}, "tpot_ms": {"mean": 120}})
FLEET = {
    "time_scale": SCALE,
    "objectives": {"ttft_s": 4.0, "tpot_s": 0.2},
    "options": {OPTION: {"gpu": GPU, "replicas": 3, "warm_up_s": 8.0, "output_tokens": 40, "input_tokens": 900}},
}


def request() -> PlanRequest:
    """The option's rates by the performance model, in requests per second of this machine."""
    config = ReplicaConfig(model=builtin_models().get("Llama-3.1-8B"), gpu=builtin_gpus().get(GPU))
    sizes = [(inputs, outputs) for inputs in INPUT_EDGES for outputs in OUTPUT_EDGES]
    rates = [SCALE * estimate.max_rps for estimate in highest_rates(config, SLO, sizes=sizes)]
    columns = len(OUTPUT_EDGES)
    table = [rates[at : at + columns] for at in range(0, len(rates), columns)]
    share = [[1.0 / len(rates)] * columns for _ in INPUT_EDGES]
    buckets = {"input_tokens": INPUT_EDGES, "output_tokens": OUTPUT_EDGES, "share": share}
    option = {"name": OPTION, "gpu": GPU, "price_usd_per_h": 1.0, "max_rps": table}
    workload = {"name": "chat", "rate_rps": 1.0, "buckets": buckets, "options": [option], "min_replicas": 1}
    return PlanRequest.model_validate({"workloads": [workload], "utilisation": 0.85})


def traffic(*, rate_rps: float, seconds: float, seed: int = 0) -> Trace:
    """Poisson arrivals of prompts around 300 tokens, in seconds and rates of the model."""
    generator = np.random.default_rng(seed)
    arrival_s = np.cumsum(generator.exponential(1 / rate_rps, round(rate_rps * seconds)))
    prompts = generator.lognormal(np.log(280), 0.25, len(arrival_s)).clip(50, 600)
    return Trace(arrival_s, prompts.astype(np.int64), np.full(len(arrival_s), 40))


@dataclass(kw_only=True)
class PlanningScene:
    fleet: EngineFleet
    prometheus: Prometheus
    server: Server
    folder: Path
    running: ExitStack
    programs: Path
    statuses: list[PlanningLoopStatus] = field(default_factory=list)  # one per window, as the autoscaler read them
    _stop: threading.Event = field(default_factory=threading.Event)

    def source(self, **changes: Any) -> dict[str, Any]:
        url = {"kind": "prometheus", "url": self.prometheus.url, "profile": "vllm", "max_age_s": 5.0}
        return url | {"parts": {GPU: {"option": OPTION}}} | changes

    def register(self, *sources: dict[str, Any], name: str = "chat", **spec: Any) -> None:
        application = {"kind": "kubernetes_scale", "namespace": "chat", "objects": {GPU: {"name": "engines"}}}
        demand = {"sources": list(sources or [self.source()])}
        target = {"workload": "chat", "application": application, "demand": demand}
        described = {
            "request": request().model_dump(mode="json", exclude_defaults=True),
            "targets": {"chat": name},
            "mode": "apply",
            "window_s": WINDOW_S,
            "warm_up_s": 5.0,
            "patience": 3,
        } | spec
        with self.server.client() as client:
            client.create_target(name, TargetSpec.model_validate(target))
            client.create_planning_loop(name, PlanningLoopSpec.model_validate(described))

    def start_controller(self, *, lease_s: float = 2.0) -> Process:
        options = ["--period-s", "0.5", "--lease-s", str(lease_s), "--metrics-port", "0"]
        options += ["--token-file", str(self.folder / "token")]
        process = Process.start(
            [sys.executable, "-m", "api.cli", "controller", "run", "--url", self.server.url, *options],
            name=f"controller-{len(list(self.folder.glob('controller-*')))}",
            log_dir=self.folder,
            env={"PATH": os.environ["PATH"]},
            cwd=ROOT,
        )
        self.running.callback(process.stop)
        return process

    def kill_prometheus(self) -> None:
        os.kill(self.prometheus.pid, signal.SIGKILL)

    def restart_prometheus(self) -> None:
        """Start Prometheus again at its address, with its data."""
        address, folder = self.prometheus.url.removeprefix("http://"), self.prometheus.config_path.parent
        process = prometheus_process(self.programs / "prometheus", directory=folder, address=address)
        self.running.callback(process.stop)

    def pause_prometheus(self) -> None:
        os.kill(self.prometheus.pid, signal.SIGSTOP)

    def resume_prometheus(self) -> None:
        os.kill(self.prometheus.pid, signal.SIGCONT)

    def start_autoscaler(self, name: str = "chat") -> None:
        thread = threading.Thread(target=self._autoscale, args=(name,), daemon=True)
        thread.start()
        self.running.callback(thread.join)
        self.running.callback(self._stop.set)

    def _autoscale(self, name: str) -> None:
        with self.server.client() as client:
            while not self._stop.wait(0.5):
                status = status_of(client, name)
                if status is None or (self.statuses and self.statuses[-1].window_end == status.window_end):
                    continue
                self.statuses.append(status)
                if (wanted := status.wanted.get(name, {}).get(GPU)) is not None:
                    self.fleet.scale(OPTION, max(1, wanted))

    def wait_for_phase(
        self, *phases: LoopPhase, name: str = "chat", after: int = 0, problem: str = ""
    ) -> PlanningLoopStatus:
        """Wait for a phase, with a problem that contains this text, and after so many windows of the autoscaler."""
        with self.server.client() as client:

            def read() -> PlanningLoopStatus | None:
                return status_of(client, name)

            def reached(found: PlanningLoopStatus | None) -> bool:
                if found is None or found.phase not in phases or len(self.statuses) < after:
                    return False
                return any(problem in each for each in found.problems) if problem else True

            found = wait_for(read, reached, what=f"phase {' or '.join(phases)} of {name} {problem}", timeout_s=90)
        assert found is not None
        return found


def status_of(client: Client, name: str) -> PlanningLoopStatus | None:
    try:
        return client.get_planning_loop_status(name)
    except NotFoundError:
        return None


@contextmanager
def planning_scene(programs: Path, start_server: StartServer, *, folder: Path) -> Iterator[PlanningScene]:
    """The service with its worker, and a scraped fleet; controllers are started by the test."""
    server = start_server(f"sqlite+aiosqlite:///{folder}/fleetwright.db", "--no-controller")
    with scraped_fleet(FLEET, programs, directory=folder) as (fleet, prometheus), ExitStack() as running:
        yield PlanningScene(
            fleet=fleet, prometheus=prometheus, server=server, folder=folder, running=running, programs=programs
        )
