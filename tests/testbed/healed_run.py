"""A training run that is healed: a small Ray cluster with a spare, the service, the run, healers to start and kill."""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from api.client import Fleetwright
from api.schemas.remediation import HealingCase
from faults.quarantine import IsolationRules, Mode
from tests.testbed.processes import LOOPBACK, Process, free_ports
from tests.testbed.ray_cluster import RayCluster, RayNode, running_ray_cluster
from tests.testbed.server import ADMIN_TOKEN, running_servers
from tests.testbed.train_job import TrainJob
from tests.testbed.waiting import wait_for

ENDLESS: Final = 10_000_000  # steps


def slots(count: int) -> tuple[RayNode, ...]:
    """Nodes with room for one worker each."""
    return tuple(
        RayNode(name=f"slot-{number}", cpus=1, rack=f"rack-{number}", power_domain=f"pdu-{number}")
        for number in range(count)
    )


@dataclass
class HealedRun:
    """Everything around one run."""

    cluster: RayCluster
    client: Fleetwright
    url: str
    job: TrainJob
    folder: Path
    healers: int = field(default=0)
    healer_url: str = ""  # of the newest one's metrics and health

    def lives(self) -> list[dict[str, Any]]:
        """Of all workers, in the order in which they began."""
        if not self.job.lives.exists():
            return []
        return [
            json.loads(line) for line in self.job.lives.read_text().splitlines(keepends=True) if line.endswith("\n")
        ]

    def cases(self) -> list[HealingCase]:
        """As the service has them."""
        return list(self.client.iter_healing_cases())

    @contextmanager
    def healer(self, *options: str) -> Iterator[Process]:
        """A healer, which acts and watches; it may be killed."""
        self.healers += 1
        argv: list[str | Path] = [sys.executable, "-m", "api.cli", "heal", "run", "--address", self.cluster.address]
        argv += ["--inbox", self.job.to.removeprefix("unix:"), "--url", self.url]
        (port,) = free_ports(1)
        self.healer_url = f"http://{LOOPBACK}:{port}"
        argv += ["--token-file", self.folder / "token", "--metrics-port", str(port), *options]
        with Process.start(argv, name=f"healer-{self.healers}", log_dir=self.folder) as process:
            yield process

    def wait_watched(self, healer: Process, *, attempt: int = 1) -> None:
        """Until an attempt of the run is under watch."""

        def watched() -> bool:
            assert healer.running(), healer.log_tail()
            lines = healer.log_path.read_text(errors="replace").splitlines()
            return any('"run_watched"' in line and f'"attempt": {attempt},' in line for line in lines)

        wait_for(watched, what="run under watch")


@contextmanager
def healed_run(
    folder: Path, *, nodes: int = 3, workers: int = 2, rules: IsolationRules | None = None
) -> Iterator[HealedRun]:
    """A run that trains, with isolation in mode `apply`."""
    short = Path(tempfile.mkdtemp(prefix="fw-heal-"))  # Unix sockets' paths have a limit
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, short, ignore_errors=True)
        cluster = stack.enter_context(running_ray_cluster(slots(nodes), log_dir=folder, head_cpus=0))
        server = stack.enter_context(running_servers(folder))(f"sqlite+aiosqlite:///{folder}/fleetwright.db")
        client = stack.enter_context(Fleetwright(server.url, token=ADMIN_TOKEN))
        shipped = client.get_isolation_rules()
        client.replace_isolation_rules(rules or IsolationRules(mode=Mode.APPLY), if_match=shipped.etag)
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
        run = HealedRun(cluster=cluster, client=client, url=server.url, job=job, folder=folder)

        def begun() -> bool:
            assert driver.running(), driver.log_tail()
            return len(run.lives()) >= workers

        wait_for(begun, what="workers of the run")
        yield run
