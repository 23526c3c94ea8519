"""Runs a remediated training run: a small Ray cluster with a spare, the API, the run, and remediation controllers."""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from api.client import Client
from api.schemas.remediation import RemediationCase
from faults.quarantine import PolicyMode, QuarantineRules
from tests.testbed.processes import LOOPBACK, Process, free_ports
from tests.testbed.ray_cluster import RayCluster, RayNode, running_ray_cluster
from tests.testbed.server import ADMIN_TOKEN, running_servers
from tests.testbed.train_job import TrainJob
from tests.testbed.waiting import wait_for

ENDLESS: Final = 10_000_000  # steps


def slots(count: int) -> tuple[RayNode, ...]:
    """Return nodes with room for one worker each."""
    return tuple(
        RayNode(name=f"slot-{number}", cpus=1, rack=f"rack-{number}", power_domain=f"pdu-{number}")
        for number in range(count)
    )


@dataclass
class RemediatedRun:
    cluster: RayCluster
    client: Client
    url: str
    job: TrainJob
    folder: Path
    controllers: int = field(default=0)
    controller_url: str = ""  # of the newest one's metrics and health

    def lives(self) -> list[dict[str, Any]]:
        """Return the processes of all workers, in the order of their start."""
        if not self.job.lives.exists():
            return []
        return [
            json.loads(line) for line in self.job.lives.read_text().splitlines(keepends=True) if line.endswith("\n")
        ]

    def cases(self) -> list[RemediationCase]:
        return list(self.client.iter_remediation_cases())

    @contextmanager
    def controller(self, *options: str) -> Iterator[Process]:
        """Run a remediation controller, which can be killed."""
        self.controllers += 1
        argv: list[str | Path] = [
            sys.executable,
            "-m",
            "api.cli",
            "remediate",
            "run",
            "--address",
            self.cluster.address,
        ]
        argv += ["--inbox", self.job.to.removeprefix("unix:"), "--url", self.url]
        (port,) = free_ports(1)
        self.controller_url = f"http://{LOOPBACK}:{port}"
        argv += ["--token-file", self.folder / "token", "--metrics-port", str(port), *options]
        with Process.start(argv, name=f"remediation-{self.controllers}", log_dir=self.folder) as process:
            yield process

    def wait_watched(self, controller: Process, *, attempt: int = 1) -> None:
        """Wait until an attempt of the run is monitored."""

        def monitored() -> bool:
            assert controller.running(), controller.log_tail()
            lines = controller.log_path.read_text(errors="replace").splitlines()
            return any('"run_watched"' in line and f'"attempt": {attempt},' in line for line in lines)

        wait_for(monitored, what="monitored run")


@contextmanager
def remediated_run(
    folder: Path, *, nodes: int = 3, workers: int = 2, rules: QuarantineRules | None = None
) -> Iterator[RemediatedRun]:
    """Start a training run, with the quarantine policy in mode `apply`."""
    short = Path(tempfile.mkdtemp(prefix="fw-heal-"))  # Unix sockets' paths have a limit
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, short, ignore_errors=True)
        cluster = stack.enter_context(running_ray_cluster(slots(nodes), log_dir=folder, head_cpus=0))
        server = stack.enter_context(running_servers(folder))(f"sqlite+aiosqlite:///{folder}/fleetwright.db")
        client = stack.enter_context(Client(server.url, token=ADMIN_TOKEN))
        shipped = client.get_quarantine_rules()
        client.replace_quarantine_rules(rules or QuarantineRules(mode=PolicyMode.APPLY), if_match=shipped.etag)
        job = TrainJob(
            address=cluster.address,
            folder=str(folder),
            to=f"unix:{short}/{{node}}",
            steps=ENDLESS,
            workers=workers,
            healed=True,
        )
        settings = folder / "train.json"
        settings.write_text(json.dumps(asdict(job)))
        argv: list[str | Path] = [sys.executable, "-m", "tests.testbed.train_job", settings]
        driver = stack.enter_context(Process.start(argv, name="train", log_dir=folder))
        run = RemediatedRun(cluster=cluster, client=client, url=server.url, job=job, folder=folder)

        def begun() -> bool:
            assert driver.running(), driver.log_tail()
            return len(run.lives()) >= workers

        wait_for(begun, what="workers of the run")
        yield run
