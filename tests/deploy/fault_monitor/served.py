"""The real fault monitor of a job on loopback: its loop, its routes and their server, in a thread of the test."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from prometheus_client import CollectorRegistry

from deploy.fault_monitor.job_config import JobConfig
from deploy.fault_monitor.loop import MonitorLoop
from deploy.fault_monitor.metrics import MonitorMetrics
from deploy.fault_monitor.outputs import JsonLines
from deploy.fault_monitor.process import monitor_app
from tests.testbed.asgi import serving
from tests.testbed.waiting import PATIENCE_S


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
        found = self._registry.get_sample_value(f"fleetwright_faults_{name}", {"training_job": "llm", **labels})
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
    with serving(app, loop.run) as url:
        yield Served(url, registry, token)
