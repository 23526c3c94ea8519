"""Jobs in real processes: results, limits, cancellation and crashes."""

import asyncio
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import pytest

from api.jobs.catalogues import CatalogueText
from api.jobs.executor import Limits
from api.jobs.outcome import Finished, JobFailure, JobLimits, Solved, Task
from api.jobs.process import ProcessExecutor, lower_priority
from api.schemas.jobs import Lane
from tests.api.server.test_plans import plan_request
from tests.testbed.proc import thread_count
from tests.testbed.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 11, 27, tzinfo=UTC)
AS_SHIPPED = dict.fromkeys(("gpus", "models", "offers"), CatalogueText())
LIMITS = Limits(memory_mib=1024, deadline_s=PATIENCE_S)
REPLAYED = {  # some tenths of a second in compiled code
    "workloads": [
        {
            "name": "chat",
            "rate_rps": 20,
            "model": "Llama-3.1-8B",
            "buckets": {"input_tokens": [500], "output_tokens": [250], "share": [[1.0]]},
            "slo": {"ttft_ms": {"p99": 2000}, "tpot_ms": {"p99": 100}},
        }
    ],
    "replay": {"hours": 0.3},
}
LONG = {"ranks": 16_384, "hours": 0.12}  # tens of seconds


@pytest.fixture(scope="module")
def executor() -> ProcessExecutor:
    return ProcessExecutor()


def task(kind: str = "plan", *, request: Any = None, **inputs: Any) -> Task:
    text = json.dumps(plan_request() if request is None else request)
    return Task(id="j", kind=kind, request=text, inputs=inputs or AS_SHIPPED, limits=JobLimits(), now=NOW)


def failure(finished: Finished) -> JobFailure:
    assert isinstance(finished.outcome, JobFailure), finished.outcome
    return finished.outcome


@pytest.fixture
def phases() -> list[str]:
    return []


@pytest.fixture
def report(phases: list[str]) -> Callable[[str, float | None], None]:
    return lambda phase, _share: phases.append(phase)


async def test_a_plan_is_solved_with_its_phases_and_processor_time(
    executor: ProcessExecutor, report: Any, phases: list[str]
) -> None:
    finished = await executor.run(task(), limits=LIMITS, report=report)
    assert isinstance(finished.outcome, Solved)
    assert json.loads(finished.outcome.output)["status"] == "optimal"
    assert finished.outcome.columns["status"] == "optimal"
    assert finished.cpu_s > 0
    assert phases[0] == "reading the request"
    assert {"options", "mix", "explanation"} <= set(phases)


async def test_an_error_of_the_request_names_its_field(executor: ProcessExecutor, report: Any) -> None:
    wrong = plan_request() | {"time_limit_s": -1, "unknown": 1}
    found = failure(await executor.run(task(request=wrong), limits=LIMITS, report=report))
    assert (found.status, found.kind) == (422, "invalid-request")
    assert {problem.path for problem in found.field_problems()} == {"time_limit_s", "unknown"}


async def test_a_job_uses_one_thread(executor: ProcessExecutor, report: Any) -> None:
    """A slot of a worker is one core."""
    running = asyncio.create_task(executor.run(task(request=REPLAYED), limits=LIMITS, report=report))
    counts = []
    while not running.done():
        await asyncio.sleep(0.02)
        counts += [count for pid in job_processes() if (count := thread_count(pid))]
    assert isinstance((await running).outcome, Solved)
    assert set(counts) == {1}


async def test_a_job_that_needs_more_memory_is_ended_and_says_so(executor: ProcessExecutor, report: Any) -> None:
    hungry = Limits(memory_mib=256, deadline_s=PATIENCE_S)
    found = failure(await executor.run(task("fault simulation", request=LONG), limits=hungry, report=report))
    assert (found.status, found.kind) == (422, "job-out-of-memory")
    assert "256 MiB" in found.detail


async def test_a_job_ends_at_its_deadline(executor: ProcessExecutor, report: Any) -> None:
    begun_s = time.monotonic()
    short = Limits(memory_mib=2048, deadline_s=1.0, lane=Lane.WORK)
    finished = await executor.run(task("fault simulation", request=LONG), limits=short, report=report)
    assert failure(finished).kind == "job-past-deadline"
    assert time.monotonic() - begun_s < PATIENCE_S / 2


async def test_a_cancelled_job_leaves_no_process(executor: ProcessExecutor, report: Any, phases: list[str]) -> None:
    running = asyncio.create_task(executor.run(task("fault simulation", request=LONG), limits=LIMITS, report=report))
    while "simulating the cluster" not in phases:
        await asyncio.sleep(0.01)
    (child,) = job_processes()
    begun_s = time.monotonic()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert time.monotonic() - begun_s < 1.0
    assert child not in job_processes()


async def test_a_killed_process_fails_its_job_with_the_signal(
    executor: ProcessExecutor, report: Any, phases: list[str]
) -> None:
    running = asyncio.create_task(executor.run(task("fault simulation", request=LONG), limits=LIMITS, report=report))
    while "simulating the cluster" not in phases:
        await asyncio.sleep(0.01)
    (child,) = job_processes()
    os.kill(child, signal.SIGKILL)
    found = failure(await running)
    assert (found.status, found.kind) == (500, "job-died")
    assert "SIGKILL" in found.detail


def job_processes() -> list[int]:
    """Return the processes with the priority of lane `work` that descend from this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            parent, nice = int(fields[1]), int(fields[16])
            if nice == 10 and _parent(parent) == os.getpid():
                found.append(int(entry.name))
    return found


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def priority_of_a_job(answers: "SimpleQueue[tuple[int, bool, str]]") -> None:
    lower_priority(7)
    path = Path("/proc/self/autogroup")
    group = path.read_text() if path.exists() else "nice 7"
    answers.put((os.nice(0), os.getsid(0) == os.getpid(), group))


def test_a_job_has_a_session_of_its_own_with_its_niceness() -> None:
    """Linux may share the processor between sessions first, and only then by niceness."""
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    process = context.Process(target=priority_of_a_job, args=(answers,))
    process.start()
    niceness, leads_session, group = answers.get()
    process.join()
    assert (niceness, leads_session) == (os.nice(0) + 7, True)
    assert group.strip().endswith("nice 7")
