"""What the controller counts about itself."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

# A round is a few HTTP calls when all is well and is cut off at the target timeout when it is not.
_ROUND_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class ControllerMetrics:
    """Counters of one controller, on the registry of whoever serves them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._rounds = Counter(
            "fleetwright_controller_rounds",
            "Rounds over all targets; failed: targets could not be listed, or a report could not be stored.",
            ["outcome"],
            registry=registry,
        )
        self._round_seconds = Histogram(
            "fleetwright_controller_round_seconds",
            "Time from listing the targets to the last report of the round.",
            buckets=_ROUND_BUCKETS_S,
            registry=registry,
        )
        self._writes = Counter(
            "fleetwright_controller_writes",
            "Changes asked of a target.",
            ["target", "kind"],
            registry=registry,
        )
        self._leads = Gauge(
            "fleetwright_controller_leads",
            "Whether this controller holds the lease: 1 or 0.",
            registry=registry,
        )
        for outcome in ("ok", "failed"):
            self._rounds.labels(outcome)

    def round_ended(self, *, ok: bool, duration_s: float) -> None:
        """A round is over."""
        self._rounds.labels("ok" if ok else "failed").inc()
        self._round_seconds.observe(duration_s)

    def leads(self, *, leads: bool) -> None:
        """Whether it is this one's to act."""
        self._leads.set(leads)

    def wrote(self, *, target: str, kind: str) -> None:
        """A target took a change."""
        self._writes.labels(target, kind).inc()
