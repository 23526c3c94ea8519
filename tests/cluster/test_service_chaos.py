"""The database, the service and its worker are killed in turn under load.  The long form does each of it ten times."""

import itertools
import os
import signal
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx
import pytest

from api.client import ApiError
from api.schemas.jobs import JobState
from api.store import Migrations
from bench.service_traffic import UNLIMITED, heavy_plan, target
from tests.testbed.postgres import PostgresPrograms, PostgresServer, running_postgres
from tests.testbed.proc import descendants, is_running
from tests.testbed.processes import LOOPBACK, Process, answers_ok, free_ports
from tests.testbed.server import ADMIN_TOKEN, ROOT, StartServer
from tests.testbed.soak import SOAK
from tests.testbed.waiting import wait_for

pytestmark = pytest.mark.postgres
ROUNDS = 10 if SOAK else 1
WRITERS, PLANNERS = 4, 2
PROGRESS = 20  # acknowledged writes after each failure
END_S = 30.0  # after SIGTERM
UNREADY_S = 12.0  # a probe of the database is at most ten seconds old


@dataclass(kw_only=True)
class Load:
    """Writes and plans until it is stopped, and keeps what was acknowledged."""

    url: str = ""  # changes when the service starts again
    targets: set[str] = field(default_factory=set)
    plans: dict[str, str] = field(default_factory=dict)  # idempotency key -> id
    jobs: set[str] = field(default_factory=set)
    errors: set[int] = field(default_factory=set)  # statuses
    stopped: threading.Event = field(default_factory=threading.Event)

    def write(self, writer: int) -> None:
        for number in itertools.count():
            name = f"w{writer}-{number}"
            response = self._send("PUT", f"/v1/targets/{name}", target(number), {"If-None-Match": "*"})
            if self.stopped.is_set():
                return
            if response is not None and response.status_code == 201:
                self.targets.add(name)

    def plan(self, planner: int) -> None:
        """Send each plan with one key until it is acknowledged."""
        for number in itertools.count():
            key = f"p{planner}-{number}"
            while key not in self.plans:
                response = self.send_plan(key)
                if self.stopped.is_set():
                    return
                if response is not None and response.status_code == 201:
                    self.plans[key] = response.json()["id"]

    def send_plan(self, key: str) -> httpx.Response | None:
        body = heavy_plan(zlib.crc32(key.encode()), workloads=2, time_limit_s=2.0)
        return self._send("POST", "/v1/plans", body, {"Idempotency-Key": key})

    def request_jobs(self) -> None:
        for number in itertools.count():
            body = heavy_plan(2000 + number, workloads=2, time_limit_s=2.0)
            response = self._send("POST", "/v1/plans", body, {"Prefer": "respond-async"})
            if self.stopped.wait(5.0):
                return
            if response is not None and response.status_code == 202:
                self.jobs.add(response.json()["id"])

    def wait_for_more(self, done: Sized, count: int) -> None:
        wanted = len(done) + count
        wait_for(lambda: len(done), lambda found: found >= wanted, what=f"{count} more")

    def _send(self, method: str, path: str, body: object, headers: dict[str, str]) -> httpx.Response | None:
        """Send a request over a connection of its own; None without a response."""
        try:
            response = httpx.request(
                method,
                f"{self.url}{path}",
                json=body,
                headers={"Authorization": f"Bearer {ADMIN_TOKEN}", **headers},
                timeout=60.0,
            )
        except httpx.TransportError:
            self.stopped.wait(0.1)
            return None
        if response.status_code >= 400:
            self.errors.add(response.status_code)
            self.stopped.wait(0.1)
        return response


@dataclass(kw_only=True)
class Installation:
    database: PostgresServer
    start_server: StartServer
    log_dir: Path
    load: Load
    worker: Process | None = None
    port: int = field(default_factory=lambda: free_ports(1)[0])

    def start_service(self) -> None:
        self.server = self.start_server(self.database.url(), "--no-worker", **UNLIMITED | {"log_level": "WARNING"})
        self.load.url = self.server.url

    def start_worker(self) -> None:
        environment = {"PATH": os.environ["PATH"], "FLEETWRIGHT_DATABASE_URL": self.database.url()}
        argv = [sys.executable, "-m", "api.cli", "worker", "--metrics-port", str(self.port)]
        self.worker = Process.start(argv, name="worker", log_dir=self.log_dir, env=environment, cwd=ROOT)
        self.worker.wait_ready(lambda: answers_ok(f"http://{LOOPBACK}:{self.port}/metrics"))

    def kill_database(self) -> None:
        self.database.kill()
        wait_for(self._ready, lambda ready: not ready, what="unready", timeout_s=UNREADY_S)
        assert answers_ok(f"{self.load.url}/livez")
        self.database.start()
        wait_for(self._ready, bool, what="ready again")

    def kill_service(self, sent: signal.Signals = signal.SIGKILL) -> None:
        """End the service while requests wait for their plans."""
        end(self.server.process, sent)
        self.start_service()

    def terminate_service(self) -> None:
        self.kill_service(signal.SIGTERM)

    def kill_worker(self, sent: signal.Signals = signal.SIGKILL) -> None:
        """End the worker while it runs a job."""
        wait_for(self._running_jobs, bool, what="a running job")
        assert self.worker is not None
        end(self.worker, sent)
        self.start_worker()

    def terminate_worker(self) -> None:
        self.kill_worker(signal.SIGTERM)

    def _ready(self) -> bool:
        return answers_ok(f"{self.load.url}/readyz")

    def _running_jobs(self) -> bool:
        with self.server.client() as api, suppress(ApiError):
            return any(True for _each in api.iter_jobs(state=JobState.RUNNING))
        return False


def end(process: Process, sent: signal.Signals) -> None:
    """Send a signal, and wait until no process of its group is left."""
    group = [process.pid, *descendants(process.pid)]
    os.kill(process.pid, sent)
    process.popen.wait(END_S)
    wait_for(lambda: [pid for pid in group if is_running(pid)], lambda left: not left, what="the end of its processes")


@contextmanager
def stopped_at_the_end(installation: Installation) -> Iterator[None]:
    try:
        yield
    finally:
        if installation.worker is not None:
            installation.worker.stop()


@contextmanager
def under_load(load: Load) -> Iterator[None]:
    with ThreadPoolExecutor(WRITERS + PLANNERS + 1) as pool:
        running = [pool.submit(load.write, number) for number in range(WRITERS)]
        running += [pool.submit(load.plan, number) for number in range(PLANNERS)]
        running.append(pool.submit(load.request_jobs))
        try:
            yield
        finally:
            load.stopped.set()
            for each in running:
                each.result()


@pytest.mark.timeout(3600)
def test_nothing_acknowledged_is_lost(
    start_server: StartServer, postgres_programs: PostgresPrograms, tmp_path: Path
) -> None:
    load = Load()
    with ExitStack() as running:
        database = running.enter_context(running_postgres(postgres_programs, log_dir=tmp_path, fsync=True))
        Migrations(database.url()).upgrade()
        installation = Installation(database=database, start_server=start_server, log_dir=tmp_path, load=load)
        running.enter_context(stopped_at_the_end(installation))
        installation.start_service()
        installation.start_worker()
        failures: tuple[Callable[[], None], ...] = (
            installation.kill_database,
            installation.kill_service,
            installation.terminate_service,
            installation.kill_worker,
            installation.terminate_worker,
        )
        with under_load(load):
            for failure in failures * ROUNDS:
                failure()
                load.wait_for_more(load.targets, PROGRESS)
            load.wait_for_more(load.plans, 1)

        with installation.server.client() as api:
            assert load.targets <= {each.name for each in api.iter_targets()}
            for key, plan_id in load.plans.items():
                assert api.get_plan(plan_id).id == plan_id, key
                again = load.send_plan(key)
                assert again is not None
                assert again.json()["id"] == plan_id, "executed once, same response again"
            for job_id in load.jobs:
                ended = wait_for(partial(api.get_job, job_id), lambda job: job.state.is_final, what=f"end of {job_id}")
                assert ended.state is JobState.SUCCEEDED or ended.problem is not None, ended
            assert api.check_audit(full=True).intact
    assert load.errors <= {503}, load.errors
    log = "".join(path.read_text() for path in tmp_path.glob("serve-*.log"))
    assert "database_failed" in log
    assert '"cause": "' in log or "cause=" in log
