"""`/metrics` and `/healthz` of a long-running command: served while the command runs, closed afterwards."""

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter

from api.cli.common.errors import CommandError
from api.cli.common.metrics_port import served_metrics
from tests.testbed.processes import LOOPBACK, free_ports


@pytest.fixture
def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Counter("turns", "Turns.", registry=registry).inc(3)
    return registry


def test_health_is_evaluated_per_request_and_metrics_are_always_served(
    registry: CollectorRegistry,
) -> None:
    (port,) = free_ports(1)
    alive = True
    with served_metrics(LOOPBACK, port, registry, alive=lambda: alive), client(port) as http:
        assert (http.get("/healthz").status_code, http.get("/healthz").json()) == (200, {"status": "ok"})
        assert "turns_total 3.0" in http.get("/metrics").text
        alive = False
        assert (http.get("/healthz").status_code, http.get("/healthz").json()) == (
            503,
            {"status": "reconciles are late"},
        )
        assert "turns_total 3.0" in http.get("/metrics").text


def test_the_port_is_closed_after_the_block_even_on_an_error(registry: CollectorRegistry) -> None:
    (port,) = free_ports(1)
    for _ in range(2):  # the port is free again
        with pytest.raises(RuntimeError, match="done"), served_metrics(LOOPBACK, port, registry):
            raise RuntimeError("done")
    with client(port) as http, pytest.raises(httpx.ConnectError):
        http.get("/metrics")


def test_a_port_in_use_is_reported_and_port_0_serves_nothing(registry: CollectorRegistry) -> None:
    (port,) = free_ports(1)
    with served_metrics(LOOPBACK, port, registry):
        with pytest.raises(CommandError, match=f"port {port}"), served_metrics(LOOPBACK, port, registry):
            pytest.fail("two on one port")
        with served_metrics(LOOPBACK, 0, registry), served_metrics(LOOPBACK, 0, registry), client(port) as http:
            assert "turns_total" in http.get("/metrics").text


def client(port: int) -> httpx.Client:
    return httpx.Client(base_url=f"http://{LOOPBACK}:{port}", trust_env=False)
