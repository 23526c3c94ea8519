"""What a router that holds prompts back for watts counts: how long they waited, and what that and lower clocks cost.

The process that keeps a `power.admission.Gate` registers these on its own registry.
"""

from prometheus_client import CollectorRegistry, Gauge, Histogram

from power.admission import Gate, Started
from power.controls import Priority

# A low-priority prompt gives up its place behind the high ones after 10 s (power.admission.LOW_PATIENCE_S).
_WAIT_BUCKETS_S = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
# 0.01 is one per cent.  POLCA's limits are among them: 0.01 and 0.05 for high priority, 0.05 and 0.5 for low.
_IMPACT_BUCKETS = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class RoutingMetrics:
    """Of the prompts of one row."""

    def __init__(self, registry: CollectorRegistry, *, row: str) -> None:
        self._row = row
        labels = ["row", "priority"]
        self._waits = Histogram(
            "fleetwright_power_admission_wait_seconds",
            "From a prompt's arrival at the gate to its start.",
            labels,
            buckets=_WAIT_BUCKETS_S,
            registry=registry,
        )
        self._impacts = Histogram(
            "fleetwright_slo_latency_impact_ratio",
            "Latency over that of the same request at full clock and without waiting, less 1.",
            labels,
            buckets=_IMPACT_BUCKETS,
            registry=registry,
        )
        self._waiting = Gauge(
            "fleetwright_power_admission_waiting", "Prompts at the gate now.", labels, registry=registry
        )
        for priority in Priority:
            self._waits.labels(row, name_of(priority))
            self._impacts.labels(row, name_of(priority))

    def started(self, prompt: Started[object]) -> None:
        """A prompt was let through."""
        self._waits.labels(self._row, name_of(prompt.priority)).observe(prompt.waited_s)

    def waiting(self, gate: Gate[object]) -> None:
        """What the gate holds now."""
        for priority in Priority:
            self._waiting.labels(self._row, name_of(priority)).set(len(gate.queues[priority]))

    def served(self, priority: Priority, *, latency_s: float, uncapped_s: float) -> None:
        """A request is done; `uncapped_s` is what it would have taken at full clock and without waiting."""
        self._impacts.labels(self._row, name_of(priority)).observe(max(0.0, latency_s / uncapped_s - 1))


def name_of(priority: Priority) -> str:
    """As labels say it."""
    return priority.name.lower()
