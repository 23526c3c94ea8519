"""`/metrics` and `/healthz` of a command that runs on: there while it runs, true at each question, gone afterwards."""

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


def test_health_is_asked_for_at_each_question_and_metrics_are_served_whatever_it_is(
    registry: CollectorRegistry,
) -> None:
    (port,) = free_ports(1)
    alive = True
    with served_metrics(LOOPBACK, port, registry, alive=lambda: alive), client(port) as asking:
        assert (asking.get("/healthz").status_code, asking.get("/healthz").json()) == (200, {"status": "ok"})
        assert "turns_total 3.0" in asking.get("/metrics").text
        alive = False
        assert (asking.get("/healthz").status_code, asking.get("/healthz").json()) == (
            503,
            {"status": "rounds are late"},
        )
        assert "turns_total 3.0" in asking.get("/metrics").text


def test_it_ends_with_the_block_also_when_that_fails(registry: CollectorRegistry) -> None:
    (port,) = free_ports(1)
    for _ in range(2):  # the port is free again
        with pytest.raises(RuntimeError, match="done"), served_metrics(LOOPBACK, port, registry):
            raise RuntimeError("done")
    with client(port) as asking, pytest.raises(httpx.ConnectError):
        asking.get("/metrics")


def test_a_port_that_is_taken_is_told_and_none_is_none(registry: CollectorRegistry) -> None:
    (port,) = free_ports(1)
    with served_metrics(LOOPBACK, port, registry):
        with pytest.raises(CommandError, match=f"port {port}"), served_metrics(LOOPBACK, port, registry):
            pytest.fail("two on one port")
        with served_metrics(LOOPBACK, 0, registry), served_metrics(LOOPBACK, 0, registry), client(port) as asking:
            assert "turns_total" in asking.get("/metrics").text


def client(port: int) -> httpx.Client:
    return httpx.Client(base_url=f"http://{LOOPBACK}:{port}", trust_env=False)
