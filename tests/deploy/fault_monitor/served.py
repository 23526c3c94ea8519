"""The real fault monitor of a job on loopback: its loop, its routes and their server, in a thread of the test."""

import asyncio
import io
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn
from prometheus_client import CollectorRegistry

from deploy.fault_monitor.job_config import JobConfig
from deploy.fault_monitor.loop import MonitorLoop
from deploy.fault_monitor.metrics import MonitorMetrics
from deploy.fault_monitor.outputs import JsonLines
from deploy.fault_monitor.process import monitor_app
from tests.testbed.waiting import PATIENCE_S, wait_for

LOOPBACK = "127.0.0.1"


class Served:
    """The client of a served monitor."""

    def __init__(self, url: str, registry: CollectorRegistry, token: str | None) -> None:
        self.url, self._registry = url, registry
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def diagnoses(self) -> list[dict[str, Any]]:
        """The diagnoses over HTTP."""
        answer = httpx.get(f"{self.url}/v1/diagnoses", headers=self._headers, timeout=PATIENCE_S)
        found: list[dict[str, Any]] = answer.raise_for_status().json()
        return found

    def metric(self, name: str, **labels: str) -> float:
        """The value of a metric."""
        found = self._registry.get_sample_value(f"fleetwright_faults_{name}", {"job": "llm", **labels})
        assert found is not None
        return found


@contextmanager
def served(file: JobConfig, *, zero_s: float, token: str | None = None) -> Iterator[Served]:
    """Evaluate and serve until the end of the block."""
    registry = CollectorRegistry()
    loop = MonitorLoop(
        file,
        lines=JsonLines(io.StringIO(), job="llm", zero_s=zero_s),
        metrics=MonitorMetrics(registry, job="llm"),
        bundles=None,
        zero_s=zero_s,
    )
    app = monitor_app(loop, registry=registry, token=token)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined] # the test run keeps its own handlers

    async def serve(listener: socket.socket) -> None:
        evaluating = asyncio.create_task(loop.run())
        await server.serve(sockets=[listener])
        evaluating.cancel()

    with socket.create_server((LOOPBACK, 0)) as listener:
        thread = threading.Thread(target=lambda: asyncio.run(serve(listener)), daemon=True)
        thread.start()
        wait_for(lambda: server.started, what="monitor")
        try:
            yield Served(f"http://{LOOPBACK}:{listener.getsockname()[1]}", registry, token)
        finally:
            server.should_exit = True
            thread.join(timeout=PATIENCE_S)
