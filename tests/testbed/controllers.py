"""Runs controllers as processes, one at a time, between a real service and applications behind a gate."""

import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from api.client import Client, NotFoundError
from api.schemas.applications import RayServeApplication
from api.schemas.probes import HealthProbe
from api.schemas.targets import Mode, Phase, TargetSpec, TargetStatus
from api.store import Migrations
from tests.deploy.controller.harness import WORKLOAD, request_for
from tests.testbed.gate import Answering, Gate, running_gate
from tests.testbed.processes import Process
from tests.testbed.server import ROOT, Server, StartServer
from tests.testbed.waiting import wait_for


@dataclass
class Stage:
    """Holds the service, the gate and the current controller."""

    server: Server
    client: Client
    gate: Gate
    folder: Path
    running: ExitStack
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def start(self, *, lease_s: float = 1.0) -> tuple[str, Process]:
        """Start a controller with a closed connection to the API, so that later tests do not wait for its start."""
        name = f"api-{next(self.numbers)}"
        options = ["--period-s", "0.1", "--lease-s", str(lease_s), "--metrics-port", "0"]
        options += ["--token-file", str(self.folder / "token")]
        process = Process.start(
            [sys.executable, "-m", "api.cli", "controller", "run", "--url", f"{self.gate.url}/{name}/", *options],
            name=name,
            log_dir=self.folder,
            env={"PATH": os.environ["PATH"]},
            cwd=ROOT,
        )
        self.running.callback(process.stop)
        return name, process

    def open(self, name: str) -> None:
        self.gate.behind[name] = self.server.url

    def register(
        self,
        name: str,
        *,
        behind: Answering | str,
        deployments: Mapping[str, str],
        plan: Mapping[str, int],
        health: HealthProbe | None = None,
    ) -> str:
        """Register a target in mode `apply` with one replica per step; return the id of its plan."""
        self.gate.behind[f"serve-{name}"] = behind
        plan_id = self.client.create_plan(request_for(plan)).id
        application = RayServeApplication.model_validate(
            {
                "dashboard_url": f"{self.gate.url}/serve-{name}",
                "application": "chat",
                "deployments": dict(deployments),
            }
        )
        spec = TargetSpec(
            workload=WORKLOAD,
            application=application,
            mode=Mode.APPLY,
            plan_id=plan_id,
            max_step=1,
            max_step_per_window=1_000,
            health=health,
        )
        self.client.create_target(name, spec)
        return plan_id

    def done(self, name: str) -> TargetStatus:
        """Wait for the report that the plan is applied."""
        status = self.wait(name, lambda reported: reported.phase is Phase.APPLIED, what=f"{name} applied")
        self.client.delete_target(name, if_match=self.client.get_target(name).etag)
        return status

    def wait(self, name: str, condition: Callable[[TargetStatus], bool], *, what: str) -> TargetStatus:
        """Wait for the first report that satisfies `condition`."""
        status = wait_for(
            lambda: self._status(name), lambda reported: reported is not None and condition(reported), what=what
        )
        assert status is not None
        return status

    def _status(self, name: str) -> TargetStatus | None:
        try:
            return self.client.get_target_status(name)
        except NotFoundError:
            return None


@pytest.fixture
def stage(tmp_path: Path, start_server: StartServer) -> Iterator[Stage]:
    database_url = f"sqlite+aiosqlite:///{tmp_path}/fleet.db"
    Migrations(database_url).upgrade()
    server = start_server(database_url, "--no-controller", rate_limit_per_s="100000", rate_limit_burst="100000")
    with ExitStack() as running, running_gate() as gate, server.client() as client:
        yield Stage(server=server, client=client, gate=gate, folder=tmp_path, running=running)
