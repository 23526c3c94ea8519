"""The watcher of one job as a process."""

import asyncio
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from prometheus_client import CollectorRegistry

from api.client import AsyncFleetwright
from deploy.fault_monitor.api_reporter import Reporter
from deploy.fault_monitor.job_config import JobFile
from deploy.fault_monitor.loop import WatchLoop
from deploy.fault_monitor.metrics import WatcherMetrics
from deploy.fault_monitor.outputs import Bundles, Lines
from deploy.fault_monitor.routes import watcher_app
from deploy.power_guard.process import serve_beside


@dataclass(frozen=True, slots=True)
class ReportTo:
    """The service that faults are reported to, and what it calls the job's nodes."""

    client: AsyncFleetwright
    names: Sequence[str]


async def run_watcher(
    file: JobFile,
    listener: socket.socket,
    *,
    token: str | None,
    out: TextIO,
    bundles: Path | None,
    report_to: ReportTo | None = None,
) -> None:
    """Until told to end; what is due of bundles and reports goes out before."""
    registry = CollectorRegistry()
    zero_s = time.time()
    metrics = WatcherMetrics(registry, job=file.name)
    reporter = None
    if report_to is not None:
        reporter = Reporter(
            client=report_to.client, file=file, names=report_to.names, zero_s=zero_s, counted=metrics.reported
        )
    loop = WatchLoop(
        file,
        lines=Lines(out, job=file.name, zero_s=zero_s),
        metrics=metrics,
        bundles=Bundles(bundles, job=file.job(), settings=file.settings) if bundles else None,
        zero_s=zero_s,
        reporter=reporter,
    )
    with _outliving_sigterm():
        try:
            app = watcher_app(loop, registry=registry, token=token)
            await serve_beside(app, listener, _both(loop, reporter))
        finally:
            await loop.finish()
            if reporter is not None:
                await reporter.finish()
                await reporter.client.close()


async def _both(loop: WatchLoop, reporter: Reporter | None) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(loop.run())
        if reporter is not None:
            tasks.create_task(reporter.run())


@contextmanager
def _outliving_sigterm() -> Iterator[None]:
    """The server ends at SIGTERM and then raises it again, for whoever was there before: that would end us at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
