"""Throughput of one and of two workers, each with one slot, on the same plans and one PostgreSQL server.

Each plan replays its traffic, about a second of a core, with one thread.  The plans are stored in one transaction once
all workers run; the time counts from the first start of a plan to the last end.

    python -m bench service_workers     FLEETWRIGHT_WORKER_PLANS=64
"""

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from api.schemas.jobs import JobState
from api.store import Migrations
from bench.harness import Row
from tests.testbed.postgres import PostgresServer, find_programs, running_postgres
from tests.testbed.proc import descendants, thread_count
from tests.testbed.processes import Process
from tests.testbed.waiting import wait_for
from tests.testbed.workers import Table, running_worker

PLANS: Final = "FLEETWRIGHT_WORKER_PLANS"
WAIT_S: Final = 900.0
SAMPLE_S: Final = 1.0  # to read /proc takes a good part of a core otherwise
HOURS: Final = 0.6  # of traffic that each plan replays
SIZES: Final = {"input_tokens": [500, 2000], "output_tokens": [250, 1000], "share": [[0.4, 0.1], [0.3, 0.2]]}
SLO: Final = {"ttft_ms": {"p99": 2000}, "tpot_ms": {"p99": 100}}


def run() -> list[Row]:
    count = int(os.environ.get(PLANS, "64"))
    with (
        tempfile.TemporaryDirectory() as folder,
        running_postgres(find_programs(), log_dir=Path(folder), fsync=True) as server,
    ):
        one = _measured(server, Path(folder), workers=1, plans=count)
        two = _measured(server, Path(folder), workers=2, plans=count)
    return [one | {"ratio": 1.0}, two | {"ratio": one["wall_s"] / two["wall_s"]}]


def _request(number: int) -> dict[str, Any]:
    workload = {"name": "chat", "rate_rps": 15 + number / 10, "model": "Llama-3.1-8B", "buckets": SIZES, "slo": SLO}
    return {"workloads": [workload], "replay": {"hours": HOURS}, "policy": {"explain": "none"}}


def _measured(server: PostgresServer, folder: Path, *, workers: int, plans: int) -> Row:
    server.execute("CREATE DATABASE {}", name := f"workers_{workers}")
    Migrations(url := server.url(name)).upgrade()
    table = Table(url)
    with ExitStack() as stack:
        names = [f"w{workers}-{number}" for number in range(workers)]
        running = [stack.enter_context(running_worker(url, folder, name=name, plan_concurrency="1")) for name in names]
        for worker in running:
            worker.wait_ready(partial(_has_started, worker))
        jobs = table.add_all(map(_request, range(plans)), kind="plan")
        with _max_threads([worker.pid for worker in running]) as max_threads:
            wait_for(
                lambda: table.count_ended(jobs), lambda n: n == plans, what="plans", timeout_s=WAIT_S, interval_s=1
            )
    ended = [table.get(job) for job in jobs]
    if any(job.state != JobState.SUCCEEDED for job in ended):
        raise RuntimeError("a plan failed: see the log of its worker")
    spans = [(job.started_at, job.finished_at) for job in ended if job.started_at and job.finished_at]
    wall_s = (max(end for _start, end in spans) - min(start for start, _end in spans)).total_seconds()
    busy_s = sum((end - start).total_seconds() for start, end in spans)
    return {
        "workers": workers,
        "plans": plans,
        "wall_s": wall_s,
        "plans_per_min": plans / wall_s * 60,
        "busy_slots": busy_s / wall_s,
        "cpu_s": sum(job.cpu_s or 0.0 for job in ended),
        "threads_per_job": max_threads[0],
    }


def _has_started(worker: Process) -> bool:
    return "worker_started" in worker.log_tail()


@contextmanager
def _max_threads(pids: list[int]) -> Iterator[list[int]]:
    """Sample the threads of the processes of jobs, and of the one that each worker forks them from."""
    found, stop = [0], threading.Event()

    def sample() -> None:
        while not stop.wait(SAMPLE_S):
            found[0] = max([found[0], *(thread_count(child) for pid in pids for child in descendants(pid))])

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()
