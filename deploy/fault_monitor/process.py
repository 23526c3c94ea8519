"""The process of a fault monitor: its loop, HTTP server and API reporter."""

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

from api.client import AsyncClient
from deploy.common.http_server import serve_beside
from deploy.fault_monitor.api_reporter import ApiReporter
from deploy.fault_monitor.job_config import JobConfig
from deploy.fault_monitor.loop import MonitorLoop
from deploy.fault_monitor.metrics import MonitorMetrics
from deploy.fault_monitor.outputs import BundleFolder, JsonLines
from deploy.fault_monitor.routes import monitor_app


@dataclass(frozen=True, slots=True)
class ReportTarget:
    """The API that diagnoses are reported to, and the fleet's names of the job's nodes."""

    client: AsyncClient
    names: Sequence[str]


async def run_monitor(
    file: JobConfig,
    listener: socket.socket,
    *,
    token: str | None,
    out: TextIO,
    bundles: Path | None,
    report_to: ReportTarget | None = None,
) -> None:
    """Run until SIGTERM, then write the due bundles and reports."""
    registry = CollectorRegistry()
    zero_s = time.time()
    metrics = MonitorMetrics(registry, job=file.name)
    reporter = None
    if report_to is not None:
        reporter = ApiReporter(
            client=report_to.client, file=file, names=report_to.names, zero_s=zero_s, count=metrics.count_report
        )
    loop = MonitorLoop(
        file,
        lines=JsonLines(out, job=file.name, zero_s=zero_s),
        metrics=metrics,
        bundles=BundleFolder(bundles, job=file.job(), settings=file.settings) if bundles else None,
        zero_s=zero_s,
        reporter=reporter,
    )
    with _ignoring_second_sigterm():
        try:
            app = monitor_app(loop, registry=registry, token=token)
            await serve_beside(app, listener, _both(loop, reporter))
        finally:
            await loop.finish()
            if reporter is not None:
                await reporter.finish()
                await reporter.client.close()


async def _both(loop: MonitorLoop, reporter: ApiReporter | None) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(loop.run())
        if reporter is not None:
            tasks.create_task(reporter.run())


@contextmanager
def _ignoring_second_sigterm() -> Iterator[None]:
    """Ignore the second SIGTERM: the server stops at the first one and raises it again, which would end the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
