"""Runs the real worker beside a service in the test's process, with threads instead of processes for the jobs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from api.cli.worker.run import worker_settings
from api.jobs.executor import Limits
from api.jobs.metrics import JobMetrics
from api.jobs.outcome import Finished, Report, Task
from api.jobs.process import do
from api.jobs.worker import Worker
from api.schemas.jobs import Lane
from api.store import Store


class ThreadExecutor:
    """Runs jobs in threads: no process to start for a thousand small jobs.  `test_process` tests the real executor."""

    async def warm_up(self) -> None:
        """Nothing to prepare."""

    def takes(self, _lane: Lane) -> bool:
        return True

    async def run(self, task: Task, *, limits: Limits, report: Report) -> Finished:
        return await asyncio.to_thread(do, task, report, memory_mib=limits.memory_mib)


@asynccontextmanager
async def worker_beside(app: FastAPI, *, store: Store | None = None) -> AsyncIterator[Worker]:
    """Run a worker on the store of an application, or on another one of the same database."""
    service = app.state.service
    worker = Worker(
        store=store or service.store,
        executor=ThreadExecutor(),
        settings=worker_settings(service.settings),
        metrics=JobMetrics(service.metrics.registry),
        now=service.now,
    )
    service.jobs.on_accepted = worker.wake
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await running


async def run_worker(app: FastAPI) -> None:
    """Run a worker until cancelled, also while the application ends."""
    store = Store(app.state.service.settings.database_url.get_secret_value())
    try:
        async with worker_beside(app, store=store):
            await asyncio.Event().wait()
    finally:
        await store.close()
