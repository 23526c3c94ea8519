"""Runs `fleetwright worker` as a process on jobs that a test stores itself."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from api.schemas.jobs import JobState, Lane
from api.schemas.projects import DEFAULT_PROJECT
from api.store import JobRecord, Store, StoredResult, Transaction, new_id
from tests.testbed.processes import Process
from tests.testbed.waiting import wait_for


class Table:
    """Reads and writes the jobs of one database, with a connection for each call."""

    def __init__(self, url: str) -> None:
        self.url = url

    def add(self, request: Mapping[str, Any], *, kind: str, lane: Lane = Lane.WORK) -> str:
        (job_id,) = self.add_all([request], kind=kind, lane=lane)
        return job_id

    def add_all(self, requests: Iterable[Mapping[str, Any]], *, kind: str, lane: Lane = Lane.WORK) -> list[str]:
        """Store jobs in one transaction, and return their ids."""
        now, jobs = datetime.now(UTC), list[tuple[JobRecord, str]]()
        for request in requests:
            job = JobRecord(
                id=new_id(now, after=jobs[-1][0].id if jobs else None),
                kind=kind,
                lane=lane.value,
                state=JobState.QUEUED.value,
                project=DEFAULT_PROJECT,
                created_at=now,
                created_by="token:a",
                request_id=None,
                key=None,
                fingerprint=None,
                parent=None,
                subject=None,
                deadline_s=120.0,
            )
            jobs.append((job, json.dumps(request)))

        async def add(tx: Transaction) -> None:
            for job, text in jobs:
                await tx.jobs.add(job, request=text)

        self._do(add)
        return [job.id for job, _text in jobs]

    def count_ended(self, job_ids: Sequence[str]) -> int:
        return len(self._do(lambda tx: tx.jobs.finished_among(job_ids)))

    def get(self, job_id: str) -> JobRecord:
        job: JobRecord | None = self._do(lambda tx: tx.jobs.get(job_id))
        assert job is not None
        return job

    def cancel(self, job_id: str) -> None:
        assert self._do(lambda tx: tx.jobs.cancel(job_id, at=datetime.now(UTC)))

    def children(self, job_id: str) -> list[JobRecord]:
        """Return the jobs that a job has created."""
        found: list[JobRecord] = self._do(lambda tx: tx.jobs.page(before_id=None, limit=10_000, parent=job_id))
        return found

    def result(self, job_id: str, *, kind: str) -> dict[str, Any]:
        """Return the stored result of a job."""
        stored: StoredResult | None = self._do(lambda tx: tx.results.get(kind=kind, result_id=job_id))
        assert stored is not None
        found: dict[str, Any] = json.loads(stored.result)
        return found

    def ended(self, job_id: str) -> JobRecord:
        return wait_for(
            lambda: self.get(job_id), lambda job: JobState(job.state).is_final, what="end of a job", interval_s=0.1
        )

    def _do(self, work: Callable[[Transaction], Awaitable[Any]]) -> Any:
        async def done() -> Any:
            store = Store(self.url)
            try:
                async with store.transaction() as tx:
                    return await work(tx)
            finally:
                await store.close()

        return asyncio.run(done())


@contextmanager
def running_worker(url: str, log_dir: Path, *, name: str, **settings: str) -> Iterator[Process]:
    """Run `fleetwright worker` on a database until the block ends."""
    environment = dict(os.environ) | {
        "FLEETWRIGHT_DATABASE_URL": url,
        "FLEETWRIGHT_RESULT_REUSE_S": "0",
    }
    environment |= {f"FLEETWRIGHT_{name.upper()}": value for name, value in settings.items()}
    argv = [sys.executable, "-m", "api.cli", "worker", "--metrics-port", "0", "--name", name]
    with Process.start(argv, name=name, log_dir=log_dir, env=environment) as process:
        yield process
